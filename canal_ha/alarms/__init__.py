"""Tell people about alarms: notices when one begins and when it is over, sent by handlers outside the reactor.

`watch` decides what is told; `delivery` sends it in a thread; `handlers` has the handlers of a TOML file. Other
packages add theirs as entry points of the group `canal_ha.alarm_handlers`.
"""
