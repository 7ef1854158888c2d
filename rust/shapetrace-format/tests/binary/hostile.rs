//! Files made to do harm, by hand.

use shapetrace_core::ir::{Program, Value};
use shapetrace_format::binary::{is_binary, read, write, Limits, Place, ReadError, ReadErrorKind, Tag, MAGIC};
use shapetrace_format::model::{DEPTH_LIMIT, EXPANDED_LIMIT};
use shapetrace_format::{FormatError, HostData, HostOp, Node, Nodes, TraceFile};

use crate::frame::{self, column, Frame, Section};
use crate::generate::model;

fn refused(bytes: &[u8], limits: &Limits) -> ReadError {
    read(bytes, limits).expect_err("a refused file")
}

fn kind(bytes: &[u8]) -> ReadErrorKind {
    refused(bytes, &Limits::default()).kind
}

fn sections_of(file: &TraceFile) -> Vec<Section> {
    frame::sections(&frame::payload(&write(file).expect("a file")))
}

fn kind_of(sections: &[Section]) -> ReadErrorKind {
    kind(&frame::file(&frame::join(sections)))
}

/// A file of one symbol, one op and no value, with these columns of nodes (see the description).
/// The symbol and all of the op are node 0; about and trace as well.
fn with_nodes(nodes: u64, columns: [Vec<u8>; 5]) -> Vec<Section> {
    let mut sections = sections_of(&TraceFile { program: Program::default(), host: None });
    let mut node = vec![frame::number(nodes)];
    node.extend(columns);
    node.resize(12, Vec::new());
    sections.push(Section { tag: *b"NODE", columns: node });
    let mut host = vec![vec![0, 0]];
    host.resize(7, Vec::new());
    sections.push(Section { tag: *b"HOST", columns: host });
    sections
}

#[test]
fn other_files_are_told_apart() {
    for bytes in [&b""[..], b"trace {\n}\n", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", b"\x80\x04\x95"] {
        assert_eq!(kind(bytes), ReadErrorKind::NotATrace, "{bytes:?}");
        assert!(!is_binary(bytes));
    }
    let whole = write(&model(1)).expect("a file");
    let text = |from: &[u8], to: &[u8]| {
        let mut bytes = to.to_vec();
        bytes.extend(whole.strip_prefix(from).expect("the magic"));
        bytes
    };
    for damaged in [
        text(&MAGIC, b"\x89STF\n\x1a\n"),
        text(&MAGIC, b"\x89STF\r\n\x1a\r\n"),
        text(&MAGIC, b"\x89STF\r\r\n\x1a\r\n"),
        text(&MAGIC, b"\x09STF\r\n\x1a\n"),
        b"\x89STF\r\n".iter().copied().chain(*b"123").collect(),
    ] {
        assert_eq!(kind(&damaged), ReadErrorKind::TextTransfer);
        assert!(is_binary(&damaged), "so that it is not taken for text");
    }
}

#[test]
fn another_version_says_who_wrote_it() {
    let payload = frame::payload(&write(&model(1)).expect("a file"));
    for version in [0, 2, u16::MAX] {
        let mut file = Frame::of(&payload);
        file.version = version;
        file.writer = b"shapetrace-rs 7.8.9";
        // What follows the writer is another version's business.
        let bytes = file.bytes();
        for bytes in [&bytes[..], &bytes[..40]] {
            let error = refused(bytes, &Limits::default());
            assert_eq!(error.place, Place::File(8));
            let message = format!(
                "byte 8 of the file: written by shapetrace-rs 7.8.9 in format {version}, this one reads up to 1"
            );
            assert_eq!(error.to_string(), message);
        }
    }
    let mut file = Frame::of(&payload);
    file.writer = b"not \xff UTF-8";
    read(&file.bytes(), &Limits::default()).expect("a name does no harm");
    // A damaged version is damage, not another version.
    let mut bytes = write(&model(1)).expect("a file");
    bytes[8] ^= 4;
    assert!(matches!(kind(&bytes), ReadErrorKind::Checksum { what: "the header", .. }));
}

#[test]
fn a_bomb_is_not_unpacked() {
    let zeros = vec![0; 4 << 20];
    let bomb = Frame::of(&zeros);
    assert!(bomb.packed.len() < 40_000);
    let limits = Limits { payload_bytes: 1 << 20, ..Default::default() };
    // It tells its size, and is refused for it.
    assert!(matches!(
        refused(&bomb.bytes(), &limits).kind,
        ReadErrorKind::TooLarge { what: "unpacked bytes", found, .. } if found == 4 << 20
    ));
    // It lies about its size, and is unpacked no further.
    let small = Frame { payload_bytes: 1_000, ..Frame::of(&zeros) };
    assert!(matches!(refused(&small.bytes(), &limits).kind, ReadErrorKind::Deflate { what } if what.contains("more")));
    // It says that much comes out of little: nothing is reserved for it.
    for payload_bytes in [1 << 29, 1 << 62, u64::MAX] {
        let large = Frame { payload_bytes, ..Frame::of(b"little") };
        assert!(matches!(kind(&large.bytes()), ReadErrorKind::Count { .. } | ReadErrorKind::TooLarge { .. }));
    }
    let short = Frame { payload_bytes: 7, ..Frame::of(b"little") };
    assert!(matches!(kind(&short.bytes()), ReadErrorKind::Deflate { what } if what.contains("less")));
    let mut behind = Frame::of(b"little");
    behind.packed.push(0);
    assert!(matches!(kind(&behind.bytes()), ReadErrorKind::Deflate { what } if what.contains("last byte")));
    let mut cut = Frame::of(&zeros[..100]);
    cut.packed.pop();
    assert!(matches!(kind(&cut.bytes()), ReadErrorKind::Deflate { .. }));
    let mut wrong = Frame::of(b"little");
    wrong.checksum ^= 1;
    assert!(matches!(kind(&wrong.bytes()), ReadErrorKind::Checksum { what: "the trace", .. }));
}

#[test]
fn bytes_behind_the_end_are_refused() {
    let mut bytes = write(&model(1)).expect("a file");
    let length = bytes.len() as u64;
    bytes.extend(b"more");
    let error = refused(&bytes, &Limits::default());
    assert_eq!(error.place, Place::File(length));
    assert!(matches!(error.kind, ReadErrorKind::Trailing { count: 4, .. }));
    let sections = sections_of(&model(1));
    for section in 0..sections.len() {
        for column in 0..sections[section].columns.len() {
            let mut more = sections.clone();
            more[section].columns[column].push(0);
            let error = refused(&frame::file(&frame::join(&more)), &Limits::default());
            let tag = Tag(sections[section].tag);
            assert!(matches!(error.place, Place::Section(place, _) if place == tag), "{tag} {column}: {error}");
        }
        let mut more = sections.clone();
        more[section].columns.push(Vec::new());
        assert!(matches!(kind_of(&more), ReadErrorKind::Trailing { .. }));
        more[section].columns.truncate(sections[section].columns.len() - 1);
        assert!(matches!(kind_of(&more), ReadErrorKind::Truncated { .. }));
    }
    let mut payload = frame::join(&sections);
    payload.extend(b"more");
    assert!(matches!(kind(&frame::file(&payload)), ReadErrorKind::Truncated { .. }));
}

/// A count is believed only as far as there are bytes for it.
#[test]
fn huge_counts_reserve_nothing() {
    let sections = sections_of(&model(1));
    // Columns that hold counts, and how many.
    for (tag, index, counts) in [
        (b"TEXT", 0, 1),
        (b"TEXT", 3, 1),
        (b"SYMB", 0, 1),
        (b"CNST", 0, 1),
        (b"VALU", 0, 1),
        (b"OPER", 0, 2),
        (b"OPER", 1, 1),
        (b"OPER", 4, 1),
        (b"OPER", 6, 1),
        (b"ENDS", 0, 4),
        (b"NODE", 0, 1),
        (b"NODE", 3, 1),
    ] {
        for count in [1_u64 << 20, 1 << 31, 1 << 40, u64::MAX] {
            let mut huge = sections.clone();
            let column = column(&mut huge, *tag, index);
            column.splice(..counts.min(column.len()), frame::number(count).repeat(counts));
            let found = kind_of(&huge);
            assert!(
                matches!(
                    found,
                    ReadErrorKind::Count { .. } | ReadErrorKind::Truncated { .. } | ReadErrorKind::Reference { .. }
                ),
                "{} {index}: {found}",
                Tag(*tag)
            );
        }
    }
}

#[test]
fn sections_are_there_once_and_known() {
    let sections = sections_of(&model(1));
    for index in 0..sections.len() {
        let tag = Tag(sections[index].tag);
        let mut fewer = sections.clone();
        let section = fewer.remove(index);
        assert_eq!(kind_of(&fewer), ReadErrorKind::MissingSection { tag });
        let mut twice = sections.clone();
        twice.push(section);
        assert_eq!(kind_of(&twice), ReadErrorKind::SectionTwice { tag });
    }
    let mut more = sections.clone();
    more.push(Section { tag: *b"MORE", columns: Vec::new() });
    let message = refused(&frame::file(&frame::join(&more)), &Limits::default()).to_string();
    assert!(message.ends_with("the section MORE is not known here; a later version of the program may know it"));
}

/// Nodes inside each other, each in the one before: refused at the depth that the model allows.
#[test]
fn deep_nodes_are_refused() {
    let chain = |depth: u64| {
        let mut shapes = vec![0, 0];
        shapes.resize(depth as usize + 1, 2);
        with_nodes(depth + 1, [shapes, vec![0, 8], vec![1], vec![0; depth as usize], Vec::new()])
    };
    let limit = u64::from(DEPTH_LIMIT);
    read(&frame::file(&frame::join(&chain(limit))), &Limits::default()).expect("as deep as allowed");
    for depth in [limit + 1, 200_000] {
        assert_eq!(
            kind_of(&chain(depth)),
            ReadErrorKind::Content(FormatError::TooLarge { what: "nodes inside each other", limit })
        );
    }
}

/// Each node is the one before twice.
#[test]
fn much_out_of_little_is_refused() {
    let doubling = |count: usize| {
        let mut shapes = vec![0, 0];
        shapes.resize(count + 1, 2);
        let parts = [2, 0].repeat(count);
        with_nodes(count as u64 + 1, [shapes, vec![0, 8], vec![2], parts, vec![0; count]])
    };
    read(&frame::file(&frame::join(&doubling(20))), &Limits::default()).expect("a million is allowed");
    assert_eq!(
        kind_of(&doubling(60)),
        ReadErrorKind::Content(FormatError::TooLarge { what: "nodes in one structure", limit: EXPANDED_LIMIT })
    );
}

/// A node can name only earlier ones.
#[test]
fn nodes_have_no_way_to_themselves() {
    let tuple = |part: u64, far: Vec<u8>| with_nodes(1, [vec![0], vec![8], vec![1], frame::number(part), far]);
    assert!(matches!(kind_of(&tuple(0, vec![])), ReadErrorKind::Malformed { .. }));
    assert!(matches!(kind_of(&tuple(1, vec![])), ReadErrorKind::Malformed { .. }));
    assert!(matches!(kind_of(&tuple(2, vec![0])), ReadErrorKind::Reference { .. }));
    for part in [3, 4, 5, u64::MAX - 1, u64::MAX] {
        assert!(matches!(kind_of(&tuple(part, vec![])), ReadErrorKind::Reference { .. }), "{part}");
    }
}

/// One text, of which each use costs two bytes.
#[test]
fn text_is_not_multiplied_without_end() {
    let mut stems = vec![0];
    stems.resize(3_000, 2);
    let mut sections = sections_of(&TraceFile { program: Program::default(), host: None });
    *column(&mut sections, *b"TEXT", 0) = frame::number(3_000);
    *column(&mut sections, *b"TEXT", 1) = stems;
    *column(&mut sections, *b"TEXT", 3) = frame::number(100_000);
    *column(&mut sections, *b"TEXT", 4) = vec![b'x'; 100_000];
    let limits = Limits { text_bytes: 1 << 20, ..Default::default() };
    assert!(matches!(
        refused(&frame::file(&frame::join(&sections)), &limits).kind,
        ReadErrorKind::TooLarge { what: "bytes of text", .. }
    ));
    // The same by nodes that all have the same text.
    let mut shapes = vec![0];
    shapes.resize(3_000, 1);
    let mut sections = with_nodes(3_000, [shapes, vec![6], vec![], vec![], vec![]]);
    *column(&mut sections, *b"TEXT", 0) = vec![1];
    *column(&mut sections, *b"TEXT", 1) = vec![0];
    *column(&mut sections, *b"TEXT", 3) = frame::number(100_000);
    *column(&mut sections, *b"TEXT", 4) = vec![b'x'; 100_000];
    let mut uses = vec![0, 1];
    uses.resize(3_000, 2);
    *column(&mut sections, *b"NODE", 7) = uses;
    assert!(matches!(
        refused(&frame::file(&frame::join(&sections)), &limits).kind,
        ReadErrorKind::TooLarge { what: "bytes of text", .. }
    ));
}

#[test]
fn each_limit_is_kept() {
    let bytes = write(&model(2)).expect("a file");
    let payload = frame::payload(&bytes).len() as u64;
    let exact = Limits { file_bytes: bytes.len() as u64, payload_bytes: payload, ..Default::default() };
    read(&bytes, &exact).expect("a file within its limits");
    for (limits, expected) in [
        (Limits { file_bytes: exact.file_bytes - 1, ..exact.clone() }, "bytes of the file"),
        (Limits { payload_bytes: payload - 1, ..exact.clone() }, "unpacked bytes"),
        (Limits { entries: 100, ..exact.clone() }, "entries"),
        (Limits { text_bytes: 100, ..exact.clone() }, "bytes of text"),
    ] {
        assert!(matches!(refused(&bytes, &limits).kind, ReadErrorKind::TooLarge { what, .. } if what == expected));
    }
}

/// What each part allows, but the whole does not.
#[test]
fn parts_that_do_not_belong_together_are_refused() {
    // The host's data of an op that reads x, with the program of one that reads y.
    let [mut sections, other] = ["x", "y"].map(|name| {
        let text = format!("trace(%x: tensor, %y: tensor) {{\n%z = f.g(%{name})\n}}");
        let program = shapetrace_core::text::parse(&text).expect("a program");
        let mut nodes = Nodes::default();
        let text = nodes.text("TensorProxy").expect("a small node");
        let op = program.ops().next().expect("an op");
        let mut proxy = |value: Option<Value>| {
            let proxy = Node::Proxy(value.into(), [text].into());
            nodes.add(proxy).expect("a small node")
        };
        let (read, output) = (proxy(program.operand_values(op).next()), proxy(program.result_values(op).next()));
        let args = nodes.add(Node::Tuple([read].into())).expect("a small node");
        let empty = nodes.add(Node::Dict([].into())).expect("a small node");
        let ops = vec![HostOp { args, kwargs: empty, output, details: empty }];
        let host = HostData { nodes, about: empty, trace: empty, symbols: vec![text], ops };
        sections_of(&TraceFile { program, host: Some(host) })
    });
    let is_ops = |section: &&mut Section| section.tag == *b"OPER";
    let ops = other.into_iter().find(|section| section.tag == *b"OPER").expect("the section");
    *sections.iter_mut().find(is_ops).expect("the section") = ops;
    let found = refused(&frame::file(&frame::join(&sections)), &Limits::default());
    assert_eq!(found.place, Place::Whole);
    assert!(matches!(found.kind, ReadErrorKind::Content(FormatError::Inconsistent { .. })), "{found}");
}

#[test]
fn a_text_without_use_is_refused() {
    let mut sections = sections_of(&TraceFile { program: Program::default(), host: None });
    for (index, bytes) in [(0, 1), (1, 0), (3, 1), (4, b'x')] {
        *column(&mut sections, *b"TEXT", index) = vec![bytes];
    }
    assert_eq!(kind_of(&sections), ReadErrorKind::Malformed { what: "a text is used nowhere" });
}

/// Flags of a later version are not dropped in silence.
#[test]
fn unknown_flags_are_refused() {
    for (tag, index, unknown) in [(b"SYMB", 2, 1 << 13), (b"OPER", 3, 1 << 8)] {
        let mut sections = sections_of(&model(1));
        let flags = column(&mut sections, *tag, index);
        let length = frame_length(flags);
        flags.splice(..length, frame::number(unknown));
        assert!(matches!(kind_of(&sections), ReadErrorKind::Code { code, .. } if code == unknown));
    }
}

fn frame_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| byte < 0x80).expect("a number") + 1
}
