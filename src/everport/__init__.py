"""Everport: a deployment compiler for trained models."""
