//! What passes need to know about a program before they change anything.

pub mod effects;
