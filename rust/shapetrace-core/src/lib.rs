//! Dead code elimination and shape-query optimization for traces of tensor programs.
//!
//! A program is a list of ops in nested scopes, as dense ids ([`ir`]). A caller builds one,
//! runs a pipeline of passes over it ([`passes`]), and gets an [`ir::EditList`]: which ops go and
//! why, which values have another name from now on, which results are no longer written. The
//! program itself is never changed. Nothing here knows Python; the binding crate turns thunder
//! traces into programs and edit lists into traces.
//!
//! ```
//! use shapetrace_core::ir::{OpFlags, OpSpec, ProgramBuilder, SymbolData, SymbolFlags, ValueKind};
//! use shapetrace_core::passes::{Context, Level, Options};
//!
//! // y = sin(x); z = cos(x); return y
//! let mut builder = ProgramBuilder::default();
//! let prim = |name: &str, flags| SymbolData { name: name.into(), flags: flags | SymbolFlags::PRIMITIVE, scalar: None };
//! let sin = builder.symbol(prim("sin", SymbolFlags::empty()))?;
//! let cos = builder.symbol(prim("cos", SymbolFlags::empty()))?;
//! let ret = builder.symbol(prim("return", SymbolFlags::RETURN | SymbolFlags::EFFECT | SymbolFlags::DEFINES_NOTHING))?;
//! let x = builder.named_value("x", ValueKind::Tensor)?;
//! let y = builder.named_value("y", ValueKind::Tensor)?;
//! let z = builder.named_value("z", ValueKind::Tensor)?;
//! builder.open_top_scope()?;
//! for (symbol, operand, result) in [(sin, x, Some(y)), (cos, x, Some(z)), (ret, y, None)] {
//!     let results: Vec<_> = result.into_iter().map(Into::into).collect();
//!     builder.op(&OpSpec { symbol, flags: OpFlags::empty(), operands: &[operand.into()], results: &results })?;
//! }
//! let program = builder.finish()?;
//!
//! let mut context = Context::default();
//! let edits = context.run(&program, Level::Full, &Options::default());
//! let kept: Vec<_> = program.ops().map(|op| edits.is_kept(op)).collect();
//! assert_eq!(kept, [true, false, true]);
//! # Ok::<(), shapetrace_core::error::BuildError>(())
//! ```

#![forbid(unsafe_code)]

pub mod analysis;
pub mod entity;
pub mod error;
pub mod ir;
pub mod passes;
pub mod text;
pub mod verifier;

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
