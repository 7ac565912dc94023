"""Importers: from model files to Relax."""
