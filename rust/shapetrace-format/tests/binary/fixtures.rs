//! Files of every version of the format stay readable.

use std::path::PathBuf;

use shapetrace_core::entity::Entity;
use shapetrace_core::ir::Value;
use shapetrace_format::binary::{header, read, write, Limits, FORMAT_VERSION};
use shapetrace_format::{HostData, HostOp, Node, NodeId, Nodes, TraceFile};

use crate::same::assert_same;

const PROGRAM: &str = r#"
trace(%x: tensor, %n: int = 4, %"odd name 007": other, %f: float = 0.5) keep(%m) pin(%p) {
  %y = ltorch.linear(%x, %n) {
    %i0, _ = prims.shape(%x)
    %y: tensor[%i0, 3] = prims.linear(%x, %n, True, -7, 1e300)
  }
  %m = prims.add(%n, 1)
  %b: bool = prims.convert_element_type(%m, bool)
  %p = my.kernel(%y, %"odd name 007", %f) #effect #keywords {
  }
  () = prims.python_print(%y)
  return %y
}
"#;

/// A file with everything in it.
fn whole() -> TraceFile {
    let program = shapetrace_core::text::parse(PROGRAM).expect("a program");
    let mut nodes = Nodes::default();
    let mut add = |node: Node| nodes.add(node).expect("a small node");
    let text = |text: &str| Node::Text(text.into());
    let leaves = [
        add(Node::None),
        add(Node::Bool(false)),
        add(Node::Bool(true)),
        add(Node::Int(i64::MIN)),
        add(Node::Int(63)),
        add(Node::BigInt("-170141183460469231731687303715884105728".into())),
        add(Node::Float((-0.0_f64).to_bits())),
        add(Node::Float(f64::NAN.to_bits() | 1)),
        add(text("")),
        add(text("caf\u{e9} \u{1f600} \0 042")),
        add(Node::Bytes([0, 255, 128].into())),
    ];
    let list = add(Node::List(leaves.into()));
    let empty = add(Node::Dict([].into()));
    let (object, proxy) = (add(text("Device")), add(text("TensorProxy")));
    let device = add(Node::Object([object, leaves[9]].into()));
    let mut proxies: Vec<NodeId> = Vec::new();
    for value in program.values() {
        let name = add(text(&program.value_name(value)));
        let previous = proxies.last().copied().unwrap_or(leaves[0]);
        proxies.push(add(Node::Proxy(value.into(), [proxy, name, device, previous].into())));
    }
    let unknown = add(Node::Proxy(None::<Value>.into(), [proxy].into()));
    let ops: Vec<HostOp> = program
        .ops()
        .map(|op| {
            let args: Vec<NodeId> = program.operand_values(op).map(|value| proxies[value.index()]).collect();
            let outputs: Vec<NodeId> = program.result_values(op).map(|value| proxies[value.index()]).collect();
            let args = add(Node::Tuple(args.into()));
            let output = add(Node::Tuple(outputs.into()));
            let line = add(Node::Int(10 + op.index() as i64));
            let details = add(Node::Dict([leaves[9], line].into()));
            HostOp { args, kwargs: empty, output, details }
        })
        .collect();
    let trace = add(Node::Dict([leaves[9], list, object, unknown].into()));
    // Equal to an earlier node, and yet one of its own.
    let again = nodes.push(Node::Dict([].into())).expect("a small node");
    let symbols = program.symbols().iter().enumerate().map(|(index, _)| leaves[index % leaves.len()]).collect();
    TraceFile { program, host: Some(HostData { nodes, about: again, trace, symbols, ops }) }
}

/// Reads the files under `tests/fixtures`, one for each version. A new version adds its own: run
/// once with `SHAPETRACE_ADD_FIXTURE=1`. Those that are there are never written again.
#[test]
fn files_of_all_versions_are_read() {
    for version in 1..=FORMAT_VERSION {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format_{version}.bin"));
        if !path.exists() && std::env::var_os("SHAPETRACE_ADD_FIXTURE").is_some() {
            std::fs::write(&path, write(&whole()).expect("a file")).expect("a fixture that can be written");
        }
        let bytes = std::fs::read(&path).expect("a fixture for each version");
        assert_eq!(header(&bytes).expect("a header").version, version);
        assert_same(&whole(), &read(&bytes, &Limits::default()).expect("a file of an earlier version"));
    }
}
