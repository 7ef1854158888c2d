//! The header of a file, its compression, and the sections inside.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::codec::Cursor;
use super::error::{Place, ReadError, ReadErrorKind, Tag};
use super::{Limits, FORMAT_VERSION, MAGIC, WRITER};

/// How hard the compression tries. Measured on a made trace of 5 600 ops, 149 kB of columns: level 1
/// makes 7.8 kB of them in 0.06 ms, level 2 7.0 kB, levels 3 to 9 all 5.9 kB in 0.23 to 0.35 ms, where
/// coding the columns takes 0.8 ms. Level 6 searches enough for traces that repeat themselves less.
const LEVEL: u32 = 6;

/// One byte of compressed data makes at most so many; deflate's own bound is 1032.
const MOST_PER_BYTE: u64 = 1040;

/// What stands before the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of the format.
    pub version: u16,
    /// Who wrote the file: name and version.
    pub writer: String,
    /// Bytes of the payload, unpacked.
    pub payload_bytes: u64,
    /// Bytes of the payload, packed.
    pub packed_bytes: u64,
    /// The checksum of the unpacked payload.
    checksum: u32,
    /// Where the packed payload starts.
    start: usize,
}

/// Packs a payload and puts the header before it.
pub(super) fn pack(payload: &[u8]) -> Vec<u8> {
    let packed = deflate(payload);
    let mut bytes = Vec::with_capacity(packed.len() + 64);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.push(WRITER.len() as u8);
    bytes.extend_from_slice(WRITER.as_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&(packed.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    bytes.extend_from_slice(&packed);
    bytes
}

fn deflate(payload: &[u8]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::new(LEVEL), false);
    let mut packed = Vec::with_capacity(payload.len() / 4 + 64);
    loop {
        let done = compress.total_in() as usize;
        let status = compress.compress_vec(&payload[done..], &mut packed, FlushCompress::Finish);
        if matches!(status, Ok(Status::StreamEnd)) {
            return packed;
        }
        // Only room is ever missing: memory is the one thing that compression asks for.
        packed.reserve(packed.len().max(64));
    }
}

/// The header of a file. Looks at nothing behind it.
///
/// # Errors
/// [`ReadError`] if the bytes do not start as a trace file does, end within the header, or are of
/// a later format.
pub fn header(bytes: &[u8]) -> Result<Header, ReadError> {
    check_magic(bytes)?;
    let mut fields = Fields { bytes, at: MAGIC.len() };
    let version = u16::from_le_bytes(fields.take()?);
    let [length] = fields.take::<1>()?;
    let writer = fields.slice(usize::from(length))?;
    let found = crc32fast::hash(&bytes[..fields.at]);
    let place = Place::File(fields.at as u64);
    let expected = u32::from_le_bytes(fields.take()?);
    if found != expected {
        return Err(ReadError::new(place, ReadErrorKind::Checksum { what: "the header", found, expected }));
    }
    let writer = String::from_utf8_lossy(writer).into_owned();
    if version == 0 || version > FORMAT_VERSION {
        let kind = ReadErrorKind::Version { writer, version, supported: FORMAT_VERSION };
        return Err(ReadError::new(Place::File(MAGIC.len() as u64), kind));
    }
    let payload_bytes = u64::from_le_bytes(fields.take()?);
    let packed_bytes = u64::from_le_bytes(fields.take()?);
    let checksum = u32::from_le_bytes(fields.take()?);
    Ok(Header { version, writer, payload_bytes, packed_bytes, checksum, start: fields.at })
}

/// The payload of a file.
pub(super) fn unpack(bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, ReadError> {
    let too_large = |what, found, limit| {
        let kind = ReadErrorKind::TooLarge { what, found, limit };
        Err(ReadError::new(Place::File(0), kind))
    };
    // The first bytes tell what a file is, however large it is.
    check_magic(bytes)?;
    if bytes.len() as u64 > limits.file_bytes {
        return too_large("bytes of the file", bytes.len() as u64, limits.file_bytes);
    }
    let header = header(bytes)?;
    let packed = &bytes[header.start..];
    let end = Place::File(bytes.len() as u64);
    if header.packed_bytes > packed.len() as u64 {
        let needed = header.packed_bytes - packed.len() as u64;
        return Err(ReadError::new(end, ReadErrorKind::Truncated { what: "the file", needed }));
    }
    if header.packed_bytes < packed.len() as u64 {
        let count = packed.len() as u64 - header.packed_bytes;
        let place = Place::File(bytes.len() as u64 - count);
        return Err(ReadError::new(place, ReadErrorKind::Trailing { what: "the end of the trace", count }));
    }
    if header.payload_bytes > limits.payload_bytes {
        return too_large("unpacked bytes", header.payload_bytes, limits.payload_bytes);
    }
    let most = header.packed_bytes.saturating_mul(MOST_PER_BYTE);
    if header.payload_bytes > most {
        let kind =
            ReadErrorKind::Count { what: "unpacked bytes", count: header.payload_bytes, left: header.packed_bytes };
        return Err(ReadError::new(Place::File(header.start as u64), kind));
    }
    let payload = inflate(packed, header.payload_bytes as usize, header.start)?;
    let found = crc32fast::hash(&payload);
    if found != header.checksum {
        let kind = ReadErrorKind::Checksum { what: "the trace", found, expected: header.checksum };
        return Err(ReadError::new(Place::File(header.start as u64), kind));
    }
    Ok(payload)
}

/// Unpacks exactly `length` bytes out of exactly these.
fn inflate(packed: &[u8], length: usize, start: usize) -> Result<Vec<u8>, ReadError> {
    let mut decompress = Decompress::new(false);
    let mut payload = vec![0; length];
    // All of the input and all of the room are there, so one call goes as far as it can.
    let status = decompress.decompress(packed, &mut payload, FlushDecompress::Finish);
    let (read, written) = (decompress.total_in() as usize, decompress.total_out() as usize);
    let what = match status {
        Ok(Status::StreamEnd) if read < packed.len() => "it ends before its last byte",
        Ok(Status::StreamEnd) if written < length => "it makes less than the header says",
        Ok(Status::StreamEnd) => return Ok(payload),
        Ok(_) if written == length => "it makes more than the header says",
        Ok(_) => "it does not end",
        Err(_) => "no deflate stream has these bytes",
    };
    Err(ReadError::new(Place::File((start + read) as u64), ReadErrorKind::Deflate { what }))
}

fn check_magic(bytes: &[u8]) -> Result<(), ReadError> {
    if bytes.starts_with(&MAGIC) {
        return Ok(());
    }
    let named = bytes.len() >= 4 && bytes[1..4] == MAGIC[1..4];
    let kind = match bytes.first() {
        Some(0x89) if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) => {
            let kind = ReadErrorKind::Truncated { what: "the file", needed: (MAGIC.len() - bytes.len()) as u64 };
            return Err(ReadError::new(Place::File(bytes.len() as u64), kind));
        }
        Some(0x89 | 0x09) if named => ReadErrorKind::TextTransfer,
        _ => ReadErrorKind::NotATrace,
    };
    Err(ReadError::new(Place::File(0), kind))
}

/// The fields of the header.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn slice(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let left = &self.bytes[self.at..];
        let Some(slice) = left.get(..length) else {
            let kind = ReadErrorKind::Truncated { what: "the header", needed: (length - left.len()) as u64 };
            return Err(ReadError::new(Place::File(self.bytes.len() as u64), kind));
        };
        self.at += length;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let slice = self.slice(N)?;
        Ok(std::array::from_fn(|index| slice[index]))
    }
}

/// The sections of a payload, by the tags that this reader knows.
pub(super) struct Sections<'a, const N: usize> {
    tags: [Tag; N],
    found: [Option<Cursor<'a>>; N],
    end: Place,
}

impl<'a, const N: usize> Sections<'a, N> {
    pub(super) fn new(payload: &'a [u8], tags: [Tag; N]) -> Result<Self, ReadError> {
        let mut found: [Option<Cursor<'a>>; N] = std::array::from_fn(|_| None);
        let mut cursor = Cursor::new(payload);
        while cursor.left() > 0 {
            let place = cursor.place();
            let letters = cursor.raw(4, "the list of sections")?;
            let tag = Tag(std::array::from_fn(|index| letters[index]));
            let length = cursor.uint()?;
            let body = cursor.part(length, "the section")?.in_section(tag);
            match tags.iter().position(|&known| known == tag) {
                Some(index) if found[index].is_some() => {
                    return Err(ReadError::new(place, ReadErrorKind::SectionTwice { tag }));
                }
                Some(index) => found[index] = Some(body),
                None if tag.is_optional() => {}
                None => return Err(ReadError::new(place, ReadErrorKind::UnknownSection { tag })),
            }
        }
        Ok(Self { tags, found, end: cursor.place() })
    }

    /// A section that may be missing.
    pub(super) fn find(&mut self, tag: Tag) -> Option<Cursor<'a>> {
        let index = self.tags.iter().position(|&known| known == tag)?;
        self.found[index].take()
    }

    /// A section that has to be there.
    pub(super) fn get(&mut self, tag: Tag) -> Result<Cursor<'a>, ReadError> {
        self.find(tag).ok_or_else(|| self.missing(tag))
    }

    pub(super) fn missing(&self, tag: Tag) -> ReadError {
        ReadError::new(self.end, ReadErrorKind::MissingSection { tag })
    }
}
