"""Circuits as text, as regions and as drawings."""
