//! The text form: what is printed is read back, and no text makes the parser panic.

use proptest::prelude::*;
use shapetrace_core::text::{parse, parse_all, print};

use crate::generate::{generate, recipes, Style};
use crate::optimizer::cases;

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), failure_persistence: None, ..Default::default() })]

    #[test]
    fn what_is_printed_is_read_back(recipe in recipes(70)) {
        let program = generate(&recipe, Style { captures: true, ..Style::default() }).program;
        let text = print(&program);
        let parsed = parse(&text);
        prop_assert!(parsed.is_ok(), "{:?}\n{text}", parsed.err());
        let parsed = parsed.expect("it is");
        prop_assert_eq!(print(&parsed), text);
        prop_assert_eq!(
            (parsed.op_count(), parsed.scope_count(), parsed.result_count(), parsed.shape_mentions().len()),
            (program.op_count(), program.scope_count(), program.result_count(), program.shape_mentions().len())
        );
    }

    /// Programs with pieces taken out, doubled or exchanged: an error with its place, or a program.
    #[test]
    fn malformed_text_is_an_error(recipe in recipes(20), cuts in prop::collection::vec(any::<(u16, u16, u8)>(), 1..6)) {
        let mut text = print(&generate(&recipe, Style::default()).program);
        for (at, len, how) in cuts {
            let chars: Vec<char> = text.chars().collect();
            let start = usize::from(at) % (chars.len() + 1);
            let end = (start + usize::from(len % 12)).min(chars.len());
            let piece: String = chars[start..end].iter().collect();
            let (before, after): (String, String) = (chars[..start].iter().collect(), chars[end..].iter().collect());
            text = match how % 4 {
                0 => before + &after,
                1 => before + &piece + &piece + &after,
                2 => before + ["%", "\"", "é", "#", "{", "}", "[", "\n", "_", "-", "1e", ":"][usize::from(len) % 12] + &after,
                _ => after + &piece + &before,
            };
        }
        if let Err(error) = parse_all(&text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count() + 1);
            prop_assert!(error.column >= 1);
        }
    }

    #[test]
    fn any_text_is_an_error_or_a_program(text in "(trace|keep|pin|return|[%#(){}:=,_;\"\\\\ \n\\[\\]]|[a-z0-9.-]){0,40}") {
        let _ = parse_all(&text);
    }
}
