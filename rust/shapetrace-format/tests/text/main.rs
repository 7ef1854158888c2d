//! The text form of files: that nothing is lost, and that no text does harm.

#[path = "../binary/generate.rs"]
mod generate;

use std::fmt::Write;

use proptest::prelude::*;
use shapetrace_core::ir::{NumberType, ProgramBuilder, ValueKind};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_format::binary::{read, write, Limits};
use shapetrace_format::difference::difference;
use shapetrace_format::model::{DEPTH_LIMIT, EXPANDED_LIMIT};
use shapetrace_format::optimize::optimize;
use shapetrace_format::statistics::statistics;
use shapetrace_format::text::{parse, print, print_within, ParseErrorKind, MAX_SOURCE_BYTES};
use shapetrace_format::{FormatError, TraceFile};

use generate::{generate, model, recipes, Draw};

/// How many cases a test tries: `SHAPETRACE_CASES` times as many where that is set.
fn cases(usual: u32) -> u32 {
    let factor = std::env::var("SHAPETRACE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    usual.saturating_mul(factor)
}

/// So long a text is printed in these tests; a number may stand in a dimension far behind the others.
const MOST_TEXT: usize = 1 << 16;

/// Does with a file all that can be done with one: each answer is a file in full as well.
fn use_in_full(file: &TraceFile) {
    file.check().expect("what was read is consistent");
    let Ok(text) = print_within(file, MOST_TEXT) else {
        assert!(write(file).is_ok());
        return;
    };
    let again = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(print(&again), text, "printing is a fixed point");
    assert_eq!(print_within(file, text.len()).as_ref(), Ok(&text));
    assert!(text.is_empty() || print_within(file, text.len() - 1).is_err());
    let bytes = write(file).expect("a consistent file is written");
    let again = read(&bytes, &Limits::default()).expect("what was written is read");
    assert_eq!(print(&again), text, "the binary form lost something");
    assert_eq!(statistics(file).top_level_ops + statistics(file).nested_ops, file.program.op_count());
    let mut context = Context::default();
    for level in [Level::Full, Level::Compat] {
        let after = optimize(file, &mut context, level, &Options::default()).expect("a small file");
        after.check().expect("an optimized file is consistent");
        let text = print(&after);
        assert_eq!(print(&parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))), text);
    }
}

/// Reads; an error has its place in the text and something to say, and what is read is a file in full.
fn try_text(text: &str) -> bool {
    match parse(text) {
        Ok(file) => {
            use_in_full(&file);
            true
        }
        Err(error) => {
            let lines: Vec<&str> = text.split('\n').collect();
            assert!((1..=lines.len()).contains(&error.line), "{error}\n{text}");
            assert!((1..=lines[error.line - 1].chars().count() + 1).contains(&error.column), "{error}\n{text}");
            assert!(!error.kind.to_string().is_empty());
            false
        }
    }
}

/// What parsers stumble over.
const PIECES: [&str; 40] = [
    "%",
    "~",
    "$",
    "\"",
    "b\"",
    "\\",
    "é",
    "#",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "=",
    ";",
    "\n",
    "\r",
    "_",
    "-",
    "'1",
    "'0",
    "1e",
    "1.5",
    "-0.0",
    "inf",
    "nan(0x7ff8000000000001)",
    "99999999999999999999",
    "None",
    "True",
    "host {",
    "about",
    "ops {",
    "symbols {",
    "args",
    "output",
    "details",
    "return",
];

/// Changes a text in one of the ways that parsers are bad at.
fn change(text: &str, donor: &str, draw: &mut Draw) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = draw.below(chars.len() + 1);
    let longest = [3, 12, 200][draw.below(3)];
    let end = (at + draw.below(longest)).min(chars.len());
    let part = |range: std::ops::Range<usize>| chars[range].iter().collect::<String>();
    let (before, piece, after) = (part(0..at), part(at..end), part(end..chars.len()));
    let lines: Vec<&str> = donor.lines().collect();
    match draw.below(8) {
        0 => before + &after,
        1 => before + &piece + &piece + &after,
        2 => before + &piece + PIECES[draw.below(PIECES.len())] + &after,
        3 => before + PIECES[draw.below(PIECES.len())] + &after,
        // A line of another file, or lines in another order.
        4 => before + "\n" + lines.get(draw.below(lines.len())).unwrap_or(&"") + "\n" + &after,
        5 => {
            let mut lines: Vec<&str> = text.lines().collect();
            if lines.len() > 1 {
                let line = lines.remove(draw.below(lines.len()));
                lines.insert(draw.below(lines.len() + 1), line);
            }
            lines.join("\n")
        }
        6 => {
            let mut lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                lines.remove(draw.below(lines.len()));
            }
            lines.join("\n")
        }
        _ => before,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: cases(300), ..ProptestConfig::default() })]

    /// Nothing is lost, whatever is in the file.
    #[test]
    fn files_survive(recipe in recipes(40)) {
        use_in_full(&generate(&recipe));
    }

    /// Files with pieces taken out, doubled, exchanged, or from another file.
    #[test]
    fn no_change_does_harm(recipe in recipes(20), other in recipes(20), seed in any::<u64>(), changes in 1..5_usize) {
        let mut draw = Draw(seed);
        let text = |file: TraceFile| print_within(&file, MOST_TEXT).unwrap_or_else(|_| print(&model(1)));
        let donor = text(generate(&other));
        let mut text = text(if draw.one_in(4) { model(1) } else { generate(&recipe) });
        for _ in 0..changes {
            text = change(&text, &donor, &mut draw);
        }
        try_text(&text);
    }

    #[test]
    fn no_other_text_does_harm(
        program in "(trace|keep|return|%[ab]|f\\.g|[#(){}:=,_;\" \n]|[a-z0-9.-]){0,20}",
        host in "(about|trace|symbols|ops|args|output|None|[%~$][ab]|[a-z]\\(|'|\"|b\"|[(){}:=,_;\\\\ \n\\[\\]]|[a-z0-9.-]){0,60}",
    ) {
        try_text(&program);
        try_text(&format!("trace(%a) {{\n%b = f.g(%a)\n}}\nhost {{{host}"));
        try_text(&host);
    }
}

/// Damaged files get as far as each part, and some are files still.
#[test]
fn both_ways_are_seen() {
    let mut draw = Draw(3);
    let text = print(&model(1));
    let (mut read, mut kinds) = (0, std::collections::BTreeSet::new());
    for _ in 0..500 {
        match parse(&change(&text, &text, &mut draw)) {
            Ok(_) => read += 1,
            Err(error) => {
                let words = format!("{:?}", error.kind);
                kinds.insert(words.split([' ', '(', '{']).next().map(str::to_owned));
            }
        }
    }
    assert!(read > 5, "{read} files");
    assert!(kinds.len() > 10, "{kinds:?}");
}

/// What the fuzzer begins with is a file, with every kind of node in it.
#[test]
fn the_seed_of_the_fuzzer_is_a_file() {
    assert!(try_text(include_str!("../../../../fuzz/seeds/host.trace")));
}

/// A host block around something, with a program that has no ops.
fn with_about(definitions: &str, about: &str) -> String {
    format!("trace {{\n}}\nhost {{\n{definitions}about {about}\nsymbols {{\n}}\ntrace None\nops {{\n}}\n}}\n")
}

fn kind(text: &str) -> ParseErrorKind {
    parse(text).expect_err("no file").kind
}

/// In a thread with a small stack: a recursion would end the process.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(128 * 1024).spawn(work).expect("a thread").join().expect("no panic");
}

#[test]
fn deep_brackets_are_refused() {
    on_a_small_stack(|| {
        let limit = DEPTH_LIMIT as usize;
        for [open, close] in [["[", "]"], ["(", ",)"], ["{0: ", "}"], ["f(", ")"], ["\"any\"(", ")"]] {
            let deep = |depth: usize| with_about("", &(open.repeat(depth) + "1" + &close.repeat(depth)));
            assert_eq!(print(&parse(&deep(limit)).expect("as deep as allowed")).matches('1').count(), 1);
            for depth in [limit + 1, limit + 2, 300_000] {
                let found = kind(&deep(depth));
                let expected = FormatError::TooLarge { what: "nodes inside each other", limit: limit as u64 };
                assert!(
                    found == expected.into() || found == ParseErrorKind::TooDeep { limit: DEPTH_LIMIT },
                    "{depth}: {found}"
                );
            }
            kind(&with_about("", &open.repeat(300_000)));
        }
    });
}

/// Each node is the one before twice.
#[test]
fn much_out_of_little_is_refused() {
    let doubling = |count: usize| {
        let mut lines = "$n0 = 1\n".to_owned();
        for index in 0..count {
            writeln!(lines, "$n{} = ($n{index}, $n{index})", index + 1).expect("into a string");
        }
        with_about(&lines, &format!("$n{count}"))
    };
    parse(&doubling(20)).expect("a million is allowed");
    assert_eq!(
        kind(&doubling(60)),
        ParseErrorKind::Format(FormatError::TooLarge { what: "nodes in one structure", limit: EXPANDED_LIMIT })
    );
}

/// A file of some bytes whose text has gigabytes: a number in a dimension far behind the others.
#[test]
fn a_text_that_fits_no_memory_is_given_up() {
    let mut builder = ProgramBuilder::default();
    let tensor = builder.named_value("x", ValueKind::Tensor).expect("a value");
    for position in [3, u32::MAX] {
        let number = builder.value(ValueKind::Number(NumberType::Int)).expect("a value");
        builder.shape_mention(tensor, position, number).expect("values");
    }
    builder.input(tensor).expect("a value");
    let file = TraceFile { program: builder.finish().expect("a program"), host: None };
    let bytes = write(&file).expect("a file");
    assert!(bytes.len() < 200);
    let file = read(&bytes, &Limits::default()).expect("a file");
    let refused = FormatError::TooLarge { what: "bytes of text", limit: MAX_SOURCE_BYTES as u64 };
    assert_eq!(print_within(&file, MAX_SOURCE_BYTES), Err(refused));
    assert!(difference(&file, &file, ("a", "b"), 3, true).is_ok(), "the shape of an input is not compared");

    let text = format!("trace(%x) {{\n%y: tensor[{}%n] = f.g(%x)\nreturn %y\n}}\n", "_, ".repeat(10_000));
    let file = parse(&text).expect("a file");
    assert_eq!(print(&parse(&print(&file)).expect("a file")), print(&file));
    assert!(print_within(&file, 30_000).is_err());
    assert!(print_within(&file, text.len() + 100).is_ok());
}

/// Much of one thing: read, or refused where it ends, and never once more for each piece of it.
#[test]
fn long_things_take_no_more_than_their_length() {
    let count = 200_000;
    let digits = "9".repeat(count);
    assert!(parse(&with_about("", &digits)).is_ok());
    assert!(parse(&with_about("", &format!("({})", "1, ".repeat(count)))).is_ok());
    assert!(parse(&with_about("", &format!("\"{}\"", "\\n".repeat(count)))).is_ok());
    assert!(parse(&with_about(&"; nothing\n".repeat(count), "None")).is_ok());
    let mut definitions = String::new();
    for index in 0..count {
        writeln!(definitions, "$n{index} = {index}").expect("into a string");
    }
    assert!(parse(&with_about(&definitions, "None")).is_ok());
    for text in ["%", "\"", "(", "host {\n", "trace", "host", "\\", "\n", "'", "-", "{ ", "0."] {
        assert!(parse(&text.repeat(count)).is_err() || text == "\n", "{text}");
        kind(&with_about("", &text.repeat(count)));
    }
}
