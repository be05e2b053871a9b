"""Tests of the mesh."""
