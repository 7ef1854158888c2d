//! What holds of every program at level "full".

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use shapetrace_core::ir::{apply, Reason};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_core::text::print;

use crate::checks::{check, Setting};
use crate::generate::{generate, recipes, Style};
use crate::oracle::count_dead;

/// How many cases to try: `SHAPETRACE_CASES` times as many where that is set.
pub(crate) fn cases(usual: u32) -> u32 {
    let factor = std::env::var("SHAPETRACE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    usual.saturating_mul(factor)
}

fn options() -> impl Strategy<Value = Options> {
    any::<(bool, bool, bool)>().prop_map(|(keep_random, keep_shape_numbers, floor_division)| Options {
        keep_random,
        keep_shape_numbers,
        floor_division,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), failure_persistence: None, max_shrink_iters: 20_000, ..Default::default() })]

    /// Same outputs and effects; well formed; a second run changes nothing; edits say what happens.
    #[test]
    fn all_checks_hold(recipe in recipes(70), options in options()) {
        let program = generate(&recipe, Style::default()).program;
        let checked = check(&program, Setting::new(Level::Full, options));
        prop_assert!(checked.is_ok(), "{options:?}\n{}", checked.err().unwrap_or_default());
    }

    /// Programs in which inner ops use outer numbers that their owner does not take, or in which
    /// what is an input is known only by its use, compute the same afterwards as well.
    #[test]
    fn sloppy_programs_compute_the_same(
        recipe in recipes(60),
        options in options(),
        (captures, undeclared_inputs) in any::<(bool, bool)>(),
    ) {
        let program = generate(&recipe, Style { captures, undeclared_inputs }).program;
        let setting = Setting { malformed: true, ..Setting::new(Level::Full, options) };
        let checked = check(&program, setting);
        prop_assert!(checked.is_ok(), "{options:?}\n{}", checked.err().unwrap_or_default());
    }

    #[test]
    fn compat_checks_hold(recipe in recipes(60)) {
        let program = generate(&recipe, Style::default()).program;
        let setting = Setting { not_equivalent: true, one_run: true, ..Setting::new(Level::Compat, Options::default()) };
        let checked = check(&program, setting);
        prop_assert!(checked.is_ok(), "{}", checked.err().unwrap_or_default());
    }

    /// At least what plain dead code elimination finds is removed.
    #[test]
    fn removes_no_less_than_the_oracle(recipe in recipes(70), keep_random in any::<bool>()) {
        let program = generate(&recipe, Style::default()).program;
        let mut context = Context::default();
        let options = Options { keep_random, ..Default::default() };
        let edits = context.run(&program, Level::Full, &options);
        let removed: usize = Reason::ALL.iter().map(|&reason| edits.removed_count(reason)).sum();
        let after = apply(&program, edits);
        prop_assert_eq!(removed, program.op_count() - after.op_count());
        let oracle = count_dead(&program, keep_random);
        prop_assert!(removed >= oracle, "{removed} < {oracle}\n{}after:\n{}", print(&program), print(&after));
    }

    /// The same answer every time, whatever the memory was used for before.
    #[test]
    fn deterministic(first in recipes(40), second in recipes(40), options in options()) {
        let (first, second) = (generate(&first, Style::default()).program, generate(&second, Style::default()).program);
        let mut fresh = Context::default();
        let expected = apply(&second, fresh.run(&second, Level::Full, &options));
        let mut used = Context::default();
        used.run(&first, Level::Full, &options);
        used.run(&first, Level::Compat, &options);
        let again = apply(&second, used.run(&second, Level::Full, &options));
        prop_assert_eq!(print(&expected), print(&again));
    }
}

/// The generator is worth something: it reaches every feature, and the optimizer every reason.
#[test]
fn generated_programs_reach_everything() {
    const CASES: usize = 600;
    let mut runner = TestRunner::deterministic();
    let mut features: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut reached: BTreeMap<&'static str, usize> = BTreeMap::new();
    let (mut context, mut worlds) = (Context::default(), 0);
    for _ in 0..CASES {
        let recipe = recipes(70).new_tree(&mut runner).expect("a recipe").current();
        let generated = generate(&recipe, Style::default());
        generated.features.add_to(&mut features);
        let program = generated.program;
        let options = Options { floor_division: true, ..Default::default() };
        let edits = context.run(&program, Level::Full, &options);
        for &reason in Reason::ALL {
            *reached.entry(reason.name()).or_default() += usize::from(edits.removed_count(reason) > 0);
        }
        *reached.entry("renamed").or_default() += usize::from(edits.has_replacements());
        *reached.entry("rewritten").or_default() += usize::from(!edits.rewrites().is_empty());
        let dropped = program.ops().any(|op| program.result_range(op).any(|slot| edits.is_dropped(slot)));
        *reached.entry("dropped").or_default() += usize::from(dropped);
        let to_literal = program.values().any(|value| edits.replacement(value).is_some_and(|to| to.value().is_none()));
        *reached.entry("to a literal").or_default() += usize::from(to_literal);
        worlds += check(&program, Setting::new(Level::Full, options)).map_or(0, |checked| checked.worlds);
    }
    println!("of {CASES} programs: {features:?}; {reached:?}; {worlds} worlds");
    let expected = [
        "nesting",
        "deeper nesting",
        "duplicate",
        "same op in another scope",
        "same op under other names",
        "effect",
        "effect inside",
        "random",
        "in place",
        "fusion",
        "pinned",
        "fixed names",
        "shape mention",
        "query of known numbers",
        "dimension with two names",
        "claimed query",
        "long floor division",
        "partly known",
    ];
    for feature in expected {
        assert!(features.get(feature).copied().unwrap_or(0) >= CASES / 50, "few programs have: {feature}");
    }
    for (what, &count) in &reached {
        assert!(count >= CASES / 60, "{what} was reached in {count} programs only");
    }
    assert!(worlds >= 3 * CASES, "the programs ran in {worlds} worlds only");
}

/// What an op that is gone had to say of a number: the round behind must look again.
#[test]
fn a_number_may_turn_out_to_be_a_dimension_in_a_later_round() {
    let text = "trace(%x, %y) {
  %a: int = prims.add(%n: int, 0)
  %n = prims.shape(%y)
  %b = prims.ge(%n, 0)
  %t = ltorch.f(%x, %a, %b)
  return %t
}
";
    let program = shapetrace_core::text::parse(text).expect("it is well written");
    let mut context = Context::default();
    let after = apply(&program, context.run(&program, Level::Full, &Options::default()));
    let last = "  %t = ltorch.f(%x, %n, True)\n";
    assert!(print(&after).contains(last), "{}", print(&after));
    assert!(context.run(&after, Level::Full, &Options::default()).is_identity());
}
