"""Replacements for another vendor's library, each module for one program."""
