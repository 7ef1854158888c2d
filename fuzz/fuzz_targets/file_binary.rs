//! Any bytes are an error with its place, or a trace file. They are read as they are, and as a payload: packed without
//! compression, with the checksums that it has to have, so that what is behind them is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shapetrace_format::binary::{read, Limits, FORMAT_VERSION, MAGIC};

fn packed(payload: &[u8]) -> Vec<u8> {
    let mut deflated = Vec::new();
    let mut blocks = payload.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        // A stored block of deflate: whether it is the last, its length, the same inverted.
        deflated.push(u8::from(blocks.peek().is_none()));
        let length = block.len() as u16;
        deflated.extend(length.to_le_bytes());
        deflated.extend((!length).to_le_bytes());
        deflated.extend(block);
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT_VERSION.to_le_bytes());
    bytes.push(0);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes.extend((payload.len() as u64).to_le_bytes());
    bytes.extend((deflated.len() as u64).to_le_bytes());
    bytes.extend(crc32fast::hash(payload).to_le_bytes());
    bytes.extend(deflated);
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { file_bytes: 1 << 20, payload_bytes: 1 << 20, entries: 1 << 16, text_bytes: 1 << 20 };
    for file in [bytes.to_vec(), packed(bytes)] {
        match read(&file, &limits) {
            Ok(file) => shapetrace_fuzz::exercise_file(&file),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
