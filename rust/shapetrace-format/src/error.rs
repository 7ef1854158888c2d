//! What can be wrong with a file.

use shapetrace_core::ir::Op;

use crate::model::NodeId;

/// A file that cannot be read, or data that cannot be written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A node refers to itself or to one behind it.
    #[error("{node} has {child} as a part, which does not come before it")]
    NotBefore {
        /// The node.
        node: NodeId,
        /// The part.
        child: NodeId,
    },
    /// A node that does not exist.
    #[error("{node} does not exist")]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// A node of another kind than its place asks for.
    #[error("{node} is {found}, where {expected} has to be")]
    WrongNode {
        /// The node.
        node: NodeId,
        /// What has to be there.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// More of something than a file may hold.
    #[error("there are more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: u64,
    },
    /// The host's data and the program do not belong together.
    #[error("{op} and its host data differ: {what}")]
    Inconsistent {
        /// The op.
        op: Op,
        /// In what they differ.
        what: &'static str,
    },
    /// The tables of the host's data have other lengths than those of the program.
    #[error("the host data is of {found} {what}, the program has {expected}")]
    WrongCount {
        /// Of what.
        what: &'static str,
        /// How many the host's data knows.
        found: usize,
        /// How many the program has.
        expected: usize,
    },
}
