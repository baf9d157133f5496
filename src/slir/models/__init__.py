"""The learnt kernel that slir ships; PROVENANCE.md says where it comes from, training/ how it is made."""
