"""Fakes and builders that several test modules use."""
