"""Cascades that slir ships; PROVENANCE.md says what they were learnt from, scripts/build_models.py how."""
