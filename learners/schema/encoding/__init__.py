"""Encoding of raw values to codes: Arrow, records, JSON, text."""
