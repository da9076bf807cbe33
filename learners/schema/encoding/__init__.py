"""Raw values to codes: Arrow, records, JSON, text."""
