"""Runs scenarios in fresh processes; knows nothing of judgement."""
