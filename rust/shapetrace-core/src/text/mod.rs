//! A readable form of programs, for tests and for people.
//!
//! ```text
//! trace(%x: tensor, %n: int = 4) keep(%k) pin(%p) {
//!   %y = ltorch.linear(%x, %w) {
//!     %i0, _ = prims.shape(%x)             ; a comment
//!     %y: tensor[%i0, 3] = prims.linear(%x, %w)
//!   }
//!   () = prims.python_print(%y) #effect
//!   return %y
//! }
//! ```
//!
//! **Lines.** An op ends with its line, or opens the scope inside it with `{`. Lists in brackets
//! may go over several lines. `;` starts a comment.
//!
//! **Header.** `trace(...)` names the inputs and may be left out; `keep(...)` the values that are
//! live at the end beside what is returned; `pin(...)` those whose name must stay.
//!
//! **Values** are `%name`, or `%"any text"`. What kind of thing a value is stands where it is
//! first mentioned: `tensor`, `int`, `float`, `bool`, `number` (complex, or not known) or
//! `other`; behind it the numbers in the shape of a tensor (literals among them are read over),
//! and `= 4`, what a number was when the program was recorded. Where nothing is said it is a
//! tensor; in the shape of a tensor and among the results of a query an integer; and the result
//! of scalar arithmetic on numbers has the type that the arithmetic gives.
//!
//! **Results** are values or `_`, a slot that is not written. An op without results and `=` hands
//! back a literal such as `None`; `() = ` an empty collection. Operands may be numbers: `4`,
//! `1.5`, `True`, and the types `int`, `float`, `bool` and `complex`.
//!
//! **Symbols** have flags by their name, see [`symbol_flags`]; words behind the op add to them
//! (`#random`) or take away (`#not-trusted`): [`SYMBOL_FLAG_WORDS`]. Those of
//! [`OP_FLAG_WORDS`], such as `#effect`, are of the op alone. `return` needs no brackets.
//!
//! [`print()`] writes the canonical form: parsing and printing it again gives the same text.

mod defaults;
mod lexer;
mod parser;
mod printer;

pub use defaults::{symbol_flags, OP_FLAG_WORDS, SYMBOL_FLAG_WORDS};
pub use lexer::MAX_SOURCE_BYTES;
pub use parser::{parse, parse_all, ParseError, ParseErrorKind, Parsed};
pub use printer::{op_line, op_lines, op_lines_within, print, print_edited, print_within};
