//! Rows and columns against what a real server prints.
