//! Any bytes are an error with its place, or programs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shapetrace_core::text::parse_all;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_all(text) {
        Ok(programs) => {
            for parsed in programs {
                shapetrace_fuzz::exercise(&parsed.program);
            }
        }
        Err(error) => assert!(error.line >= 1 && error.column >= 1 && !error.to_string().is_empty()),
    }
});
