//! Files taken apart and put together again by the description of the format, without its code.

use std::io::{Read, Write};

/// Where the writer's name starts.
const WRITER: usize = 11;

/// The payload of a file.
pub(crate) fn payload(bytes: &[u8]) -> Vec<u8> {
    let start = WRITER + usize::from(bytes[10]) + 24;
    let mut payload = Vec::new();
    flate2::read::DeflateDecoder::new(&bytes[start..]).read_to_end(&mut payload).expect("deflate");
    payload
}

/// What can be said in a header.
pub(crate) struct Frame<'a> {
    pub(crate) version: u16,
    pub(crate) writer: &'a [u8],
    pub(crate) payload_bytes: u64,
    pub(crate) checksum: u32,
    pub(crate) packed: Vec<u8>,
}

impl Frame<'_> {
    pub(crate) fn of(payload: &[u8]) -> Self {
        Self::packed(payload, flate2::Compression::fast())
    }

    fn packed(payload: &[u8], level: flate2::Compression) -> Self {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
        encoder.write_all(payload).expect("memory");
        Self {
            version: 1,
            writer: b"a test",
            payload_bytes: payload.len() as u64,
            checksum: crc32fast::hash(payload),
            packed: encoder.finish().expect("memory"),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"\x89STF\r\n\x1a\n".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.push(self.writer.len() as u8);
        bytes.extend(self.writer);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend(self.payload_bytes.to_le_bytes());
        bytes.extend((self.packed.len() as u64).to_le_bytes());
        bytes.extend(self.checksum.to_le_bytes());
        bytes.extend(&self.packed);
        bytes
    }
}

/// A file with this payload, stored: tests that make many files do not wait for compression.
pub(crate) fn file(payload: &[u8]) -> Vec<u8> {
    Frame::packed(payload, flate2::Compression::none()).bytes()
}

pub(crate) fn number(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn take_number(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a number");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

/// A section: its tag and its columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Section {
    pub(crate) tag: [u8; 4],
    pub(crate) columns: Vec<Vec<u8>>,
}

/// The sections of a payload.
pub(crate) fn sections(mut payload: &[u8]) -> Vec<Section> {
    let mut sections = Vec::new();
    while let Some((tag, rest)) = payload.split_first_chunk() {
        payload = rest;
        let length = take_number(&mut payload);
        let mut body;
        (body, payload) = payload.split_at(length as usize);
        let mut columns = Vec::new();
        while !body.is_empty() {
            let length = take_number(&mut body);
            let column;
            (column, body) = body.split_at(length as usize);
            columns.push(column.to_vec());
        }
        sections.push(Section { tag: *tag, columns });
    }
    sections
}

/// The payload of sections.
pub(crate) fn join(sections: &[Section]) -> Vec<u8> {
    let mut payload = Vec::new();
    for section in sections {
        let mut body = Vec::new();
        for column in &section.columns {
            body.extend(number(column.len() as u64));
            body.extend(column);
        }
        payload.extend(section.tag);
        payload.extend(number(body.len() as u64));
        payload.extend(body);
    }
    payload
}

/// The column of a section.
pub(crate) fn column(sections: &mut [Section], tag: [u8; 4], column: usize) -> &mut Vec<u8> {
    let section = sections.iter_mut().find(|section| section.tag == tag).expect("the section");
    &mut section.columns[column]
}
