"""What other people's programs load in the place of another vendor's library, each module for one program."""
