//! Properties of the optimizer on random programs, and on very big ones.

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
