//! What is known of a symbol and of one op, as bits.

use bitflags::bitflags;

bitflags! {
    /// What holds for every op of a symbol.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SymbolFlags: u16 {
        /// Tagged as having an effect: never removed.
        const EFFECT = 1;
        /// Draws random numbers: may go when unused, never merged with an equal one.
        const RANDOM = 1 << 1;
        /// Writes to one of its arguments.
        const IN_PLACE = 1 << 2;
        /// A primitive: it has no decomposition.
        const PRIMITIVE = 1 << 3;
        /// A fusion: its compiled callable was made from its subsymbols, which are left alone.
        const FUSION = 1 << 4;
        /// The return of the program.
        const RETURN = 1 << 5;
        /// Its results are not definitions (comments, prints, the return).
        const DEFINES_NOTHING = 1 << 6;
        /// A symbol of the host itself, whose tags tell the truth about effects. An op of any
        /// other primitive that defines no value is taken to exist for an effect.
        const TRUSTED = 1 << 7;
        /// Asks for the dimensions of a tensor: operand 0 is the tensor, result `i` dimension `i`.
        const SHAPE_QUERY = 1 << 8;
        /// Printed by the host's usual printer, which can leave out a result.
        const USUAL_PRINTER = 1 << 9;
        /// Declared by the user to be without effect, whatever else is known.
        const NO_EFFECT = 1 << 10;
        /// Declared to have no effect inside; the verifier checks it, no pass relies on it.
        const PURE = 1 << 11;
    }
}

bitflags! {
    /// What holds for one op beside what its symbol says.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpFlags: u8 {
        /// This op itself is tagged as having an effect.
        const EFFECT = 1;
        /// Takes keyword arguments.
        const KEYWORDS = 1 << 1;
        /// Some leaf of its output is not a value: a literal, or nothing at all.
        const LITERAL_RESULT = 1 << 2;
        /// Its output has no leaf: an empty collection.
        const EMPTY_RESULT = 1 << 3;
        /// The user declared this op to be without effect.
        const NO_EFFECT = 1 << 4;
        /// It defines values, but which was not read: level "compat" does not ask inside ops.
        const UNREAD_RESULT = 1 << 5;
        /// What it reads and makes keeps its name as long as the op is there, and no result is left out: it takes a
        /// collection, which nobody rewrites.
        const FIXED_NAMES = 1 << 6;
    }
}
