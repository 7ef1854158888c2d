//! Symbols, and the scalar arithmetic that the optimizer understands.

use crate::ir::SymbolFlags;

/// One interned symbol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolData {
    /// The name, with its module where the host knows one (`prims.mul`).
    pub name: String,
    /// What holds for every op of the symbol.
    pub flags: SymbolFlags,
    /// The arithmetic of the symbol when it is applied to numbers.
    pub scalar: Option<ScalarOp>,
}

/// The type of a Python number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NumberType {
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `float`
    Float,
    /// `complex`, or not known.
    Other,
}

/// A literal that scalar arithmetic can take.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A Python `bool`.
    Bool(bool),
    /// A Python `int` that fits 64 bits.
    Int(i64),
    /// A Python `float`.
    Float(f64),
    /// One of the types `bool`, `int`, `float`: the second operand of a conversion.
    Type(NumberType),
    /// Something else, known only to be itself.
    Opaque(u32),
}

impl Number {
    /// The type of the number; [`NumberType::Other`] for what is no number.
    pub fn number_type(self) -> NumberType {
        match self {
            Self::Bool(_) => NumberType::Bool,
            Self::Int(_) => NumberType::Int,
            Self::Float(_) => NumberType::Float,
            Self::Type(_) | Self::Opaque(_) => NumberType::Other,
        }
    }

    /// The value as an integer, as Python's arithmetic sees a `bool` or an `int`.
    pub fn as_int(self) -> Option<i64> {
        match self {
            Self::Bool(b) => Some(i64::from(b)),
            Self::Int(i) => Some(i),
            _ => None,
        }
    }

    fn key(self) -> (u8, u64) {
        match self {
            Self::Bool(b) => (0, u64::from(b)),
            Self::Int(i) => (1, u64::from_ne_bytes(i.to_ne_bytes())),
            Self::Float(f) => (2, f.to_bits()),
            Self::Type(t) => (3, t as u64),
            Self::Opaque(o) => (4, u64::from(o)),
        }
    }
}

/// Bitwise equality: `0.0` and `-0.0` differ, `True` and `1` differ, a NaN equals itself.
impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Number {}
impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(i) => write!(f, "{i}"),
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Type(NumberType::Bool) => f.write_str("bool"),
            Self::Type(NumberType::Int) => f.write_str("int"),
            Self::Type(NumberType::Float) => f.write_str("float"),
            Self::Type(NumberType::Other) => f.write_str("complex"),
            Self::Opaque(o) => write!(f, "opaque{o}"),
        }
    }
}

/// Declares [`ScalarOp`] with the name that each has in the text form and in thunder.
macro_rules! scalar_ops {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Pure arithmetic on Python numbers, as thunder's Python executor computes it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ScalarOp {
            $($(#[$doc])* $variant,)*
        }

        impl ScalarOp {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name of thunder's primitive.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

scalar_ops! {
    /// `a + b`
    Add = "add",
    /// `a - b`
    Sub = "sub",
    /// `a * b`
    Mul = "mul",
    /// C division: truncated for exact types, true division for floats.
    Div = "div",
    /// Python's `a // b`
    FloorDiv = "py_floordiv",
    /// Python's `a % b`
    Remainder = "remainder",
    /// `math.fmod(a, b)`, always a float
    Fmod = "fmod",
    /// `a ** b`
    Pow = "pow",
    /// `a == b`
    Eq = "eq",
    /// `a != b`
    Ne = "ne",
    /// `a < b`
    Lt = "lt",
    /// `a <= b`
    Le = "le",
    /// `a > b`
    Gt = "gt",
    /// `a >= b`
    Ge = "ge",
    /// `a & b`
    BitwiseAnd = "bitwise_and",
    /// `a | b`
    BitwiseOr = "bitwise_or",
    /// `a ^ b`
    BitwiseXor = "bitwise_xor",
    /// `a < 0`
    Signbit = "signbit",
    /// `-a`
    Neg = "neg",
    /// `abs(a)`
    Abs = "py_abs",
    /// `bool(a)`, `int(a)` or `float(a)`: the type is operand 1
    Convert = "convert_element_type",
}

impl ScalarOp {
    /// The operation of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// How many operands it takes.
    pub fn arity(self) -> usize {
        match self {
            Self::Signbit | Self::Neg | Self::Abs => 1,
            _ => 2,
        }
    }

    /// Whether swapping the operands changes nothing for exact types (`bool` and `int`).
    pub fn is_commutative(self) -> bool {
        matches!(
            self,
            Self::Add | Self::Mul | Self::Eq | Self::Ne | Self::BitwiseAnd | Self::BitwiseOr | Self::BitwiseXor
        )
    }

    /// The same comparison with the operands swapped.
    pub fn swapped_comparison(self) -> Option<Self> {
        Some(match self {
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
            _ => return None,
        })
    }
}
