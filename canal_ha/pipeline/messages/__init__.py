"""Messages of a queue: entries in, keys and values of messages out, with topic and partition. Pure.

routing: which topic and partition. canal_json, debezium, avro: the formats.
"""
