//! Any bytes are an error with its place, or a trace file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shapetrace_format::text::parse;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse(text) {
        Ok(file) => shapetrace_fuzz::exercise_file(&file),
        Err(error) => assert!(error.line >= 1 && error.column >= 1 && !error.to_string().is_empty()),
    }
});
