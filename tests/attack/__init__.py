"""Hostile requests: what an attacker with a valid key sends. Each was a fault once."""
