//! How atoms and names are spelled.

use std::fmt::Write;

/// The bits of the NaN that is spelled `nan`.
pub(super) const USUAL_NAN: u64 = 0x7ff8_0000_0000_0000;

/// Whether a character may stand in a name without quotes.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.')
}

/// Whether a text may stand without quotes where a word is read.
pub(super) fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(is_word)
        && !matches!(name, "_" | "None" | "True" | "False" | "nan" | "inf")
}

/// A name behind `%` or `~`, with quotes where it needs them.
pub(super) fn push_name(text: &mut String, name: &str) {
    if !name.is_empty() && name.chars().all(is_word) {
        text.push_str(name);
    } else {
        push_text(text, name);
    }
}

/// The name of a symbol or of what an object is, with quotes where it needs them.
pub(super) fn push_word(text: &mut String, name: &str) {
    if is_plain(name) {
        text.push_str(name);
    } else {
        push_text(text, name);
    }
}

/// Characters that are not seen, or that change how others are seen.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn escape(text: &mut String, c: char) {
    match c {
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        '\r' => text.push_str("\\r"),
        '"' | '\\' => {
            text.push('\\');
            text.push(c);
        }
        _ => {
            let code = u32::from(c);
            let written = match code {
                0..=0xff => write!(text, "\\x{code:02x}"),
                0x100..=0xffff => write!(text, "\\u{code:04x}"),
                _ => write!(text, "\\U{code:08x}"),
            };
            written.expect("into a string");
        }
    }
}

/// A text in quotes.
pub(super) fn push_text(text: &mut String, content: &str) {
    text.push('"');
    for c in content.chars() {
        if matches!(c, '"' | '\\') || is_hidden(c) {
            escape(text, c);
        } else {
            text.push(c);
        }
    }
    text.push('"');
}

/// Bytes in quotes.
pub(super) fn push_bytes(text: &mut String, content: &[u8]) {
    text.push_str("b\"");
    for &byte in content {
        let c = char::from(byte);
        if matches!(c, '"' | '\\') || !matches!(byte, b' '..=b'~') {
            escape(text, c);
        } else {
            text.push(c);
        }
    }
    text.push('"');
}

/// A float, by its bits.
pub(super) fn push_float(text: &mut String, bits: u64) {
    let float = f64::from_bits(bits);
    if bits == USUAL_NAN {
        text.push_str("nan");
    } else if float.is_nan() {
        write!(text, "nan(0x{bits:016x})").expect("into a string");
    } else {
        write!(text, "{float:?}").expect("into a string");
    }
}

/// The digits of an integer without zeros in front; `-0` is `0`.
pub(super) fn plain_digits(digits: &str) -> std::borrow::Cow<'_, str> {
    let (sign, rest) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let bare = rest.trim_start_matches('0');
    if bare.is_empty() {
        "0".into()
    } else if bare.len() == rest.len() {
        digits.into()
    } else {
        format!("{sign}{bare}").into()
    }
}
