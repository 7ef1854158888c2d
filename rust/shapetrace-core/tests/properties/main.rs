//! Properties of the optimizer on random programs, and on very big ones.

// The numbers of a step and the values of small programs have no better names than letters.
#![allow(clippy::many_single_char_names)]

mod big;
#[path = "../checks/mod.rs"]
mod checks;
mod compat_model;
mod expressions;
mod generate;
#[path = "../interpreter/mod.rs"]
mod interpreter;
mod optimizer;
mod oracle;
mod text;
