//! In what two traces differ.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{Op, Program, Scope};
use shapetrace_core::text::{op_line, MAX_SOURCE_BYTES};
use similar::{Algorithm, ChangeTag, TextDiff};

use crate::text::print_host;
use crate::{FormatError, TraceFile};

/// After this time an exact comparison gives way to a rougher one, which is still a true one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Deeper scopes are not indented further.
const DEEPEST_INDENT: usize = 24;

/// The answer of [`difference`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The lines that differ, in the unified form; empty if nothing does.
    pub unified: String,
    /// Lines of the first trace only.
    pub removed: usize,
    /// Lines of the second trace only.
    pub added: usize,
    /// Lines of both.
    pub common: usize,
    /// Whether the programs are the same, and what differs is what only the host needs.
    pub host_only: bool,
}

/// Compares two traces op by op, and, where the programs are the same and `host` asks for it, what
/// only the host needs.
///
/// `names` go to the head of the unified form; `context` is how many equal lines it shows around
/// those that differ. An op is compared by its line: its symbol and the names that it reads and
/// writes. Time is near to linear where traces are
/// alike, and bounded in any case.
///
/// # Errors
/// [`FormatError::TooLarge`] if the lines of a file have more bytes than a text may have.
pub fn difference(
    a: &TraceFile,
    b: &TraceFile,
    names: (&str, &str),
    context: usize,
    host: bool,
) -> Result<Difference, FormatError> {
    difference_within(a, b, names, context, host, PATIENCE)
}

fn difference_within(
    a: &TraceFile,
    b: &TraceFile,
    names: (&str, &str),
    context: usize,
    host: bool,
    patience: Duration,
) -> Result<Difference, FormatError> {
    let programs = compare(&lines(&a.program)?, &lines(&b.program)?, names, context, patience);
    if !host || !programs.unified.is_empty() {
        return Ok(programs);
    }
    let host = |file: &TraceFile| {
        let text = file.host.as_ref().map(|host| print_host(&file.program, host, MAX_SOURCE_BYTES));
        within_limit(text.unwrap_or_default())
    };
    let hosts = compare(&host(a)?, &host(b)?, names, context, patience);
    Ok(Difference { host_only: !hosts.unified.is_empty(), ..hosts })
}

fn within_limit(text: String) -> Result<String, FormatError> {
    if text.len() > MAX_SOURCE_BYTES {
        return Err(too_large());
    }
    Ok(text)
}

fn too_large() -> FormatError {
    FormatError::TooLarge { what: "bytes of text", limit: MAX_SOURCE_BYTES as u64 }
}

fn compare(a: &str, b: &str, names: (&str, &str), context: usize, patience: Duration) -> Difference {
    if a == b {
        return Difference { common: a.lines().count(), ..Difference::default() };
    }
    let diff =
        TextDiff::configure().algorithm(Algorithm::Patience).deadline(Instant::now() + patience).diff_lines(a, b);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    Difference {
        unified: diff.unified_diff().context_radius(context).header(names.0, names.1).to_string(),
        removed: count(ChangeTag::Delete),
        added: count(ChangeTag::Insert),
        common: count(ChangeTag::Equal),
        host_only: false,
    }
}

/// A line for each op, indented by its depth. What is said of a value where it is first mentioned
/// is left out: it would move whenever an op goes. So are numbers in shapes: an op that goes may
/// take the last mention of a number with it.
fn lines(program: &Program) -> Result<String, FormatError> {
    let mut text = String::from("trace(");
    for (end, values) in [(") keep(", program.inputs()), (")\n", program.outputs())] {
        for (index, &value) in values.iter().enumerate() {
            if text.len() > MAX_SOURCE_BYTES {
                return Err(too_large());
            }
            let _ = write!(text, "{}%{}", if index > 0 { ", " } else { "" }, program.value_name(value));
        }
        text.push_str(end);
    }
    let mut open = vec![program.scope_range(Scope::TOP)];
    while let Some(range) = open.last_mut() {
        let next = range.next();
        let depth = open.len().min(DEEPEST_INDENT);
        let Some(index) = next else {
            open.pop();
            continue;
        };
        text.push_str(&"  ".repeat(depth));
        let op = Op::from_index(index);
        text.push_str(&op_line(program, op));
        text.push('\n');
        if text.len() > MAX_SOURCE_BYTES {
            return Err(too_large());
        }
        if let Some(inside) = program.op_scope(op) {
            open.push(program.scope_range(inside));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(source: &str) -> TraceFile {
        crate::text::parse(source).expect("a program")
    }

    const BEFORE: &str = "trace(%x) {
  %y = ltorch.silu(%x) {
    %n = prims.sin(%x)
    %y = prims.silu(%x)
  }
  %z = prims.cos(%x)
  return %y
}
";

    #[test]
    fn equal_traces_do_not_differ() {
        let found = difference(&file(BEFORE), &file(BEFORE), ("a", "b"), 3, true).expect("small files");
        assert_eq!((found.unified.as_str(), found.removed, found.added, found.common), ("", 0, 0, 0));
    }

    #[test]
    fn an_op_that_went_is_one_line() {
        let after = BEFORE.replace("    %n = prims.sin(%x)\n", "");
        let found = difference(&file(BEFORE), &file(&after), ("a", "b"), 1, true).expect("small files");
        let expected = "--- a
+++ b
@@ -2,3 +2,2 @@
   %y = ltorch.silu(%x)
-    %n = prims.sin(%x)
     %y = prims.silu(%x)
";
        assert_eq!(found.unified, expected);
        assert_eq!((found.removed, found.added, found.common, found.host_only), (1, 0, 5, false));
    }

    #[test]
    fn what_was_known_of_a_value_does_not_move() {
        let before = file("trace(%x) {\n  %i: int = 4 = prims.numel(%x)\n  %y = prims.full(%i)\n  return %y\n}\n");
        let after = file("trace(%x) {\n  %y = prims.full(%i: int = 4)\n  return %y\n}\n");
        let found = difference(&before, &after, ("a", "b"), 0, true).expect("small files");
        assert_eq!((found.removed, found.added), (1, 0), "{}", found.unified);
    }

    #[test]
    fn traces_that_have_nothing_in_common_are_compared_within_a_time() {
        let source = |prefix: &str| {
            let mut source = "trace(%x) {\n".to_owned();
            for index in 0..20_000 {
                let _ = writeln!(source, "  %{prefix}{index} = prims.sin(%x)");
            }
            source + "  return %x\n}\n"
        };
        let (a, b) = (file(&source("a")), file(&source("b")));
        let found = difference_within(&a, &b, ("a", "b"), 3, true, Duration::from_millis(100)).expect("small files");
        assert_eq!((found.removed, found.added, found.common), (20_000, 20_000, 2));
    }
}
