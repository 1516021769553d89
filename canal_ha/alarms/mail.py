"""MailHandler: notices as mails through an SMTP server."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path

from canal_ha.alarms.notice import Notice
from canal_ha.config.small_files import read_secret_line

TIMEOUT_S = 10.0
TLS = ("starttls", "implicit", "none")


class MailHandler:
    """Sends each notice as a mail of its own."""

    def __init__(
        self,
        *,
        host: str,
        sender: str,
        to: Sequence[str],
        port: int = 587,
        tls: str = "starttls",
        ca: str = "",
        user: str = "",
        password_file: str = "",
    ) -> None:
        """Make a handler. Raises ValueError, OSError.

        host, port: of the SMTP server.
        sender: address in the header From.
        to: addresses.
        tls: starttls, implicit (TLS from the first byte, usually on port 465) or none.
        ca: PEM file of the authorities for the server's certificate; "" for the system's.
        user: for the login; "" for no login.
        password_file: file with the password in its first line; needs TLS.
        """
        if tls not in TLS:
            raise ValueError(f"tls is one of {', '.join(TLS)}")
        if not to or isinstance(to, str):
            raise ValueError("to is a list of addresses")
        if any(mark in text for text in (sender, *to) for mark in "\r\n"):
            raise ValueError("an address has a line break")
        if bool(user) != bool(password_file):
            raise ValueError("user and password_file go together")
        if user and tls == "none":
            raise ValueError("a password needs TLS")
        self._host, self._port, self._tls, self._sender, self._to = host, port, tls, sender, tuple(to)
        self._context = ssl.create_default_context(cafile=ca or None)
        self._login = (user, read_secret_line(Path(password_file))) if user else None

    def send(self, notice: Notice) -> None:
        """Send one notice. Raises OSError, of which smtplib's errors are."""
        mail = EmailMessage()
        mail["Subject"] = "canal-ha: " + "".join(each if each.isprintable() else "?" for each in notice.title)
        mail["From"], mail["To"] = self._sender, ", ".join(self._to)
        mail["Date"], mail["Message-ID"] = formatdate(notice.at), make_msgid(domain="canal-ha.invalid")
        mail.set_content(f"{notice.title}\n\n{notice.text}\n\nWhat to do: {notice.runbook}\n")
        with self._connected() as server:
            if self._tls == "starttls":
                server.starttls(context=self._context)
            if self._login:
                server.login(*self._login)
            server.send_message(mail)

    def _connected(self) -> smtplib.SMTP:
        if self._tls == "implicit":
            return smtplib.SMTP_SSL(self._host, self._port, timeout=TIMEOUT_S, context=self._context)
        return smtplib.SMTP(self._host, self._port, timeout=TIMEOUT_S)
