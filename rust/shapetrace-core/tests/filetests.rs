//! Runs the examples in `tests/filetests/<command>/*.trace`.
//!
//! A file starts with `test <command> <options>` and holds examples: a comment that says what
//! holds and why, and a program. What is expected stands on the ops:
//!
//! - `; removed: <reason>`: it goes. `(warned)` behind that: it is listed as suspicious. What is
//!   inside a removed op needs no remark.
//! - `; becomes: <op>`: it stays as something else.
//! - `; kept`: it stays as it is. So does every op without a remark; this says that it is the point.
//! - `; error: <kind> %value`: what the verifier says, or for `parse`, what the parser says.
//!
//! `SHAPETRACE_BLESS=1` rewrites the remarks to what happens. A file or an example in which
//! nothing is expected is an error, and so is a remark that is none of these.

mod checks;
mod interpreter;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use checks::{check, round_trip, Setting};
use libtest_mimic::{Arguments, Failed, Trial};
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{OpStatus, Program, Reason};
use shapetrace_core::passes::shape_arithmetic::rules::RULES;
use shapetrace_core::passes::{Level, Options};
use shapetrace_core::text::{op_lines, parse_all, print, Parsed};
use shapetrace_core::verifier::{verify_form, Form, VerifyErrorKind};

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests");
    let mut files = Vec::new();
    for directory in entries(&root).into_iter().filter(|path| path.is_dir()) {
        files.extend(entries(&directory).into_iter().filter(|path| path.extension().is_some_and(|e| e == "trace")));
    }
    assert!(!files.is_empty(), "there are no file tests in {}", root.display());
    let bless = std::env::var_os("SHAPETRACE_BLESS").is_some_and(|value| value == "1");
    let trials = files.into_iter().map(|path| {
        let name = path.strip_prefix(&root).expect("found below the root").with_extension("");
        Trial::test(name.display().to_string().replace('\\', "/"), move || run_file(&path, bless).map_err(Failed::from))
    });
    let mut trials: Vec<Trial> = trials.collect();
    trials.push(Trial::test("everything has an example", move || every_word_is_used(&root).map_err(Failed::from)));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Every reason, every rule of the arithmetic and every error of the verifier is in some file.
fn every_word_is_used(root: &Path) -> Result<(), String> {
    let directory = |name: &str| {
        let sources = entries(&root.join(name)).into_iter().map(std::fs::read_to_string);
        sources.collect::<Result<String, _>>().map_err(|error| error.to_string())
    };
    let reasons = Reason::ALL.iter().filter(|&&reason| reason != Reason::InsideRemoved);
    let reasons = reasons.map(|reason| format!("; removed: {}", reason.name()));
    let rules = RULES.iter().map(|rule| format!("; {}: ", rule.name));
    let errors = VerifyErrorKind::ALL.iter().map(|kind| format!("error: {}", kind.name()));
    let passes = ["dce", "duplicates", "queries", "arithmetic", "noop"].map(directory);
    let passes = passes.into_iter().collect::<Result<String, String>>()?;
    let (arithmetic, verify) = (directory("arithmetic")?, directory("verify")?);
    let missing: Vec<String> = reasons
        .filter(|word| !passes.contains(word))
        .chain(rules.filter(|word| !arithmetic.contains(word)))
        .chain(errors.filter(|word| !verify.contains(word)))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("no file has an example of {missing:?}"))
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    paths
}

/// The first line of a file.
struct Command {
    name: String,
    setting: Setting,
    form: Form,
}

impl Command {
    fn read(line: &str, directory: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let (Some("test"), Some(name)) = (words.next(), words.next()) else {
            return Err("the first line is `test <command>`".into());
        };
        if name != directory {
            return Err(format!("a test of `{name}` is in the directory of `{directory}`"));
        }
        let level = match name {
            "dce" | "duplicates" | "queries" | "arithmetic" | "noop" => Level::Full,
            "compat" => Level::Compat,
            "verify" | "parse" => Level::default(),
            _ => return Err(format!("there is no command `{name}`")),
        };
        let mut setting = Setting::new(level, Options::default());
        let mut form = Form::Traced;
        for word in words {
            match word {
                "keep_random" => setting.options.keep_random = true,
                "keep_shape_numbers" => setting.options.keep_shape_numbers = true,
                "floor_division" => setting.options.floor_division = true,
                "malformed" => setting.malformed = true,
                "not_equivalent" => setting.not_equivalent = true,
                "optimized" => form = Form::Optimized,
                _ => return Err(format!("there is no option `{word}`")),
            }
        }
        Ok(Self { name: name.into(), setting, form })
    }
}

fn run_file(path: &Path, bless: bool) -> Result<(), String> {
    let source = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let directory = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let first = source.lines().next().unwrap_or_default();
    let command = Command::read(first, &directory.unwrap_or_default())?;
    let examples = split(&source)?;
    if examples.is_empty() {
        return Err("the file has no example".into());
    }
    // Lines whose remark is not what happens, with what does.
    let mut wrong: BTreeMap<usize, Option<String>> = BTreeMap::new();
    let mut problems = String::new();
    for example in &examples {
        let happens = match command.name.as_str() {
            "parse" => run_parse(example, &mut problems),
            "verify" => run_verify(example, &command),
            _ => run_passes(example, &command),
        };
        let happens = happens.map_err(|message| format!("example at line {}: {message}", example.line))?;
        if !bless && example.remarks.is_empty() {
            return Err(format!("nothing is expected of the example at line {}", example.line));
        }
        for (line, remark) in &example.remarks {
            let matches = happens.get(line).is_some_and(|happens| match happens {
                Happens::Unchanged => remark == "kept",
                Happens::Is(text) => text == remark,
            });
            if !matches {
                let now = happens.get(line).and_then(Happens::remark);
                wrong.insert(*line, now);
            }
        }
        for (line, happens) in &happens {
            if let (Some(remark), false) = (happens.remark(), example.remarks.contains_key(line)) {
                wrong.insert(*line, Some(remark));
            }
        }
    }
    if bless && !wrong.is_empty() {
        return rewrite(path, &source, &wrong);
    }
    for (line, happens) in &wrong {
        let text = source.lines().nth(line - 1).unwrap_or_default();
        let happens = happens.as_deref().unwrap_or("nothing: it stays as it is");
        writeln!(problems, "line {line}: {}\n  happens: {happens}", text.trim()).expect("into a string");
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

/// One program of a file.
struct Example {
    /// The text, behind as many empty lines as come before it.
    text: String,
    /// The line of `trace`.
    line: usize,
    /// What stands behind `; ` on the lines of ops.
    remarks: BTreeMap<usize, String>,
}

/// What happens to the op of a line.
enum Happens {
    Unchanged,
    Is(String),
}

impl Happens {
    fn remark(&self) -> Option<String> {
        match self {
            Self::Unchanged => None,
            Self::Is(text) => Some(text.clone()),
        }
    }
}

fn split(source: &str) -> Result<Vec<Example>, String> {
    let mut examples: Vec<Example> = Vec::new();
    let mut commented = false;
    let mut inside = false;
    for (index, text) in source.lines().enumerate().skip(1) {
        let line = index + 1;
        if text.starts_with("trace") {
            if !commented {
                return Err(format!("the example at line {line} has no sentence before it that says what holds"));
            }
            examples.push(Example { text: "\n".repeat(index), line, remarks: BTreeMap::new() });
            inside = true;
            commented = false;
        }
        if !inside {
            commented |= text.starts_with("; ");
            if !text.is_empty() && !text.starts_with(';') {
                return Err(format!("line {line} belongs to no example"));
            }
            continue;
        }
        let example = examples.last_mut().expect("inside one");
        if let Some((_, remark)) = text.split_once(';') {
            let remark = remark.trim();
            let known = ["removed: ", "becomes: ", "error: "].iter().any(|start| remark.starts_with(start));
            if !known && remark != "kept" {
                return Err(format!("line {line}: `{remark}` is no remark"));
            }
            example.remarks.insert(line, remark.to_owned());
        }
        example.text.push_str(text);
        example.text.push('\n');
        inside = !text.is_empty() && text != "}";
    }
    Ok(examples)
}

fn parse_example(example: &Example) -> Result<Parsed, String> {
    let mut all = parse_all(&example.text).map_err(|error| error.to_string())?;
    match (all.pop(), all.is_empty()) {
        (Some(parsed), true) => {
            let mut op_lines: Vec<usize> = parsed.op_lines.iter().map(|&(_, line)| line).collect();
            op_lines.dedup();
            if op_lines.len() == parsed.op_lines.len() {
                Ok(parsed)
            } else {
                Err("two ops share a line".into())
            }
        }
        _ => Err("an example is one program".into()),
    }
}

fn run_passes(example: &Example, command: &Command) -> Result<BTreeMap<usize, Happens>, String> {
    let Parsed { program, op_lines: places, .. } = parse_example(example)?;
    let checked = check(&program, command.setting)?;
    if checked.worlds == 0 && !command.setting.not_equivalent {
        return Err("there is no world in which the program runs".into());
    }
    let mut happens = BTreeMap::new();
    let (lines_before, lines_after) = (op_lines(&program), op_lines(&checked.applied.program));
    for &(op, line) in &places {
        let before = &lines_before[op.index()];
        let after = checked.applied.ops[op.index()].get().map(|now| &lines_after[now.index()]);
        let what = match (checked.edits.status(op), after) {
            (OpStatus::Removed(Reason::InsideRemoved), _) => continue,
            (OpStatus::Removed(reason), _) => {
                let warned = if checked.edits.only_hands_back().contains(&op) { " (warned)" } else { "" };
                Happens::Is(format!("removed: {}{warned}", reason.name()))
            }
            (OpStatus::Kept, Some(after)) if after != before => Happens::Is(format!("becomes: {after}")),
            (OpStatus::Kept, _) => Happens::Unchanged,
        };
        happens.insert(line, what);
    }
    Ok(happens)
}

fn run_verify(example: &Example, command: &Command) -> Result<BTreeMap<usize, Happens>, String> {
    let Parsed { program, op_lines, line } = parse_example(example)?;
    round_trip(&program)?;
    let mut happens: BTreeMap<usize, Happens> = op_lines.iter().map(|&(_, line)| (line, Happens::Unchanged)).collect();
    for error in verify_form(&program, command.form) {
        let at = error.op.map_or(line, |op| op_lines.iter().find(|&&(other, _)| other == op).expect("an op").1);
        let mut text = error.kind.name().to_owned();
        if error.value.is_some() {
            write!(text, " %{}", error.name).expect("into a string");
        }
        match happens.get_mut(&at) {
            Some(Happens::Is(before)) => write!(before, ", {text}").expect("into a string"),
            _ => drop(happens.insert(at, Happens::Is(format!("error: {text}")))),
        }
    }
    Ok(happens)
}

/// An example that parses must be canonical, so that it is checked as well.
fn run_parse(example: &Example, problems: &mut String) -> Result<BTreeMap<usize, Happens>, String> {
    let mut happens = BTreeMap::new();
    match parse_all(&example.text) {
        Err(error) => drop(happens.insert(error.line, Happens::Is(format!("error: {}", error.kind)))),
        Ok(parsed) => {
            let program: &Program = &parsed.first().ok_or("an example is one program")?.program;
            happens.extend(parsed[0].op_lines.iter().map(|&(_, line)| (line, Happens::Unchanged)));
            let printed = print(program);
            let source: String = example
                .text
                .lines()
                .skip(example.line - 1)
                .map(|line| line.split_once(';').map_or(line, |(code, _)| code).trim_end().to_owned() + "\n")
                .collect();
            if source.trim_end() != printed.trim_end() {
                writeln!(problems, "the example at line {} prints as\n{printed}", example.line).expect("into a string");
            }
        }
    }
    Ok(happens)
}

fn rewrite(path: &Path, source: &str, wrong: &BTreeMap<usize, Option<String>>) -> Result<(), String> {
    let mut text = String::new();
    for (index, line) in source.lines().enumerate() {
        match wrong.get(&(index + 1)) {
            None => text.push_str(line),
            Some(remark) => {
                let code = line.split_once(';').map_or(line, |(code, _)| code).trim_end();
                text.push_str(code);
                if let Some(remark) = remark {
                    // Remarks of neighbours stand below each other as long as the code allows.
                    write!(text, "{:width$} ; {remark}", "", width = 50_usize.saturating_sub(code.len()))
                        .expect("into a string");
                }
            }
        }
        text.push('\n');
    }
    std::fs::write(path, text).map_err(|error| error.to_string())
}
