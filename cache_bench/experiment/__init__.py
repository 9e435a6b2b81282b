"""What prefix caching gains and what it costs on one machine: measured, kept, answered and drawn."""
