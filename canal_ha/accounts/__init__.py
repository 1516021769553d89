"""The accounts room: who may do what, on every port of a node.

In: the text of an accounts file, names and passwords, requests. Out: an account, or the reason of a refusal. Nothing
here reads a file, a socket or a clock: `server` and `node` do. A wrong file raises FileUnusable; a refused login
is LoginRefused or Busy, a refused request NotAllowed.
"""
