"""What an operator runs beside serving: backup, doctor, bench, demo, precompile."""
