//! Sessions that are over, or run elsewhere.
