//! What can be wrong with the bytes of a file.

use shapetrace_core::error::BuildError;

use crate::FormatError;

/// The name of a section: four ASCII letters, of which a small first one says that a reader that
/// does not know the section may pass over it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub [u8; 4]);

impl Tag {
    /// Whether a reader that does not know the section may pass over it.
    pub fn is_optional(self) -> bool {
        self.0[0].is_ascii_lowercase()
    }
}

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl std::fmt::Debug for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Where something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a byte of the file.
    File(u64),
    /// Between the sections, at a byte of the payload as it is after decompression.
    Payload(u64),
    /// In a section, at a byte of the payload as it is after decompression.
    Section(Tag, u64),
    /// In the whole: each part can be read, but they do not belong together.
    Whole,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(offset) => write!(f, "byte {offset} of the file"),
            Self::Payload(offset) => write!(f, "byte {offset} of the unpacked data"),
            Self::Section(tag, offset) => write!(f, "section {tag}, byte {offset} of the unpacked data"),
            Self::Whole => f.write_str("the file as a whole"),
        }
    }
}

/// Bytes that are no trace file, and where that shows.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{place}: {kind}")]
pub struct ReadError {
    /// Where.
    pub place: Place,
    /// What is wrong there.
    pub kind: ReadErrorKind,
}

impl ReadError {
    pub(super) fn new(place: Place, kind: ReadErrorKind) -> Self {
        Self { place, kind }
    }
}

/// What can be wrong with a file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// Another kind of file.
    #[error("this is no trace file: the first bytes are others")]
    NotATrace,
    /// The magic shows what a transfer as text does to a file.
    #[error(
        "the file was damaged by a transfer as text (line ends or the eighth bit were changed); copy it as binary"
    )]
    TextTransfer,
    /// A later format.
    #[error("written by {writer} in format {version}, this one reads up to {supported}")]
    Version {
        /// Who wrote the file: name and version.
        writer: String,
        /// In which format.
        version: u16,
        /// The latest format that is known here.
        supported: u16,
    },
    /// The file ends too early, or a part of it does.
    #[error("{what} ends here, where {needed} more bytes have to be")]
    Truncated {
        /// What ends.
        what: &'static str,
        /// How many bytes are missing at least.
        needed: u64,
    },
    /// Bytes behind the end of something.
    #[error("{count} bytes too many behind {what}")]
    Trailing {
        /// Behind what.
        what: &'static str,
        /// How many.
        count: u64,
    },
    /// More than the limits of the reader allow.
    #[error("{found} {what}, more than the limit of {limit}")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How many there are, or have to be at least.
        found: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A count that the bytes that are left cannot hold.
    #[error("{count} {what} cannot be in {left} bytes")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many are said to be there.
        count: u64,
        /// How many bytes are left for them.
        left: u64,
    },
    /// The bytes are not those that were written.
    #[error("the checksum of {what} is {found:08x}, it has to be {expected:08x}: the file is damaged")]
    Checksum {
        /// Of what.
        what: &'static str,
        /// The checksum of what is there.
        found: u32,
        /// The checksum that the file states.
        expected: u32,
    },
    /// The compressed data cannot be unpacked.
    #[error("the compressed data is damaged: {what}")]
    Deflate {
        /// In what way.
        what: &'static str,
    },
    /// A reference to something that does not exist.
    #[error("{what} {index} does not exist, there are {count}")]
    Reference {
        /// To what.
        what: &'static str,
        /// Its number; of signed ones the bits.
        index: i64,
        /// How many there are.
        count: u64,
    },
    /// A code that has no meaning here.
    #[error("{code} is no {what}")]
    Code {
        /// What has to stand here.
        what: &'static str,
        /// What stands here.
        code: u64,
    },
    /// Two parts of the file contradict each other, or a rule is broken.
    #[error("{what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
    /// A section that this reader does not know and may not pass over.
    #[error("the section {tag} is not known here; a later version of the program may know it")]
    UnknownSection {
        /// Its name.
        tag: Tag,
    },
    /// A section that is missing.
    #[error("the section {tag} is missing")]
    MissingSection {
        /// Its name.
        tag: Tag,
    },
    /// A section that is there twice.
    #[error("the section {tag} is there for a second time")]
    SectionTwice {
        /// Its name.
        tag: Tag,
    },
    /// The program is malformed.
    #[error(transparent)]
    Program(#[from] BuildError),
    /// The host's data is malformed, or does not belong to the program.
    #[error(transparent)]
    Content(#[from] FormatError),
}
