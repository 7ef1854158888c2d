//! What can be wrong with a program on its way in.

use crate::ir::{Constant, Op, Scope, Symbol, Value};

/// A program that the builder refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// More than the ids can count.
    #[error("the program has too many {what}: ids are 31 bits wide")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
    },
    /// An op names a symbol that was never added.
    #[error("{op} applies {symbol}, which was never added; add symbols before ops")]
    UnknownSymbol {
        /// The op.
        op: Op,
        /// The symbol.
        symbol: Symbol,
    },
    /// Something names a value that was never added.
    #[error("{value} was never added; add values before what uses them")]
    UnknownValue {
        /// The value.
        value: Value,
    },
    /// An op names a literal that was never added.
    #[error("{constant} was never added; add constants before what uses them")]
    UnknownConstant {
        /// The literal.
        constant: Constant,
    },
    /// An op was added before any scope was opened.
    #[error("{op} belongs to no scope; open the top level first")]
    NoScope {
        /// The op.
        op: Op,
    },
    /// Scopes were opened in an order that is not pre-order.
    #[error("{scope} is out of order: {hint}")]
    ScopeOrder {
        /// The scope.
        scope: Scope,
        /// The rule.
        hint: &'static str,
    },
}
