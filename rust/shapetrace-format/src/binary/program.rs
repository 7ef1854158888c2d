//! The sections of the program: `SYMB`, `CNST`, `VALU`, `OPER` and `ENDS`.

use shapetrace_core::entity::{Entity, PackedOption, StampMap};
use shapetrace_core::ir::{
    Constant, Number, NumberType, Op, OpFlags, Operand, Program, ProgramBuilder, ScalarOp, Scope, Symbol, SymbolData,
    SymbolFlags, Value, ValueKind,
};

use super::codec::{end_columns, near, push_section, Budget, Column, Cursor, Unused};
use super::container::Sections;
use super::error::{ReadError, ReadErrorKind, Tag};
use super::texts::{Expected, TextReader, TextWriter};

pub(super) const SYMBOLS: Tag = Tag(*b"SYMB");
pub(super) const CONSTANTS: Tag = Tag(*b"CNST");
pub(super) const VALUES: Tag = Tag(*b"VALU");
pub(super) const OPS: Tag = Tag(*b"OPER");
pub(super) const ENDS: Tag = Tag(*b"ENDS");

/// The types of numbers, by their codes.
const NUMBER_TYPES: [NumberType; 4] = [NumberType::Bool, NumberType::Int, NumberType::Float, NumberType::Other];

/// The kinds of values, by their codes.
const VALUE_KINDS: [ValueKind; 6] = [
    ValueKind::Tensor,
    ValueKind::Other,
    ValueKind::Number(NumberType::Bool),
    ValueKind::Number(NumberType::Int),
    ValueKind::Number(NumberType::Float),
    ValueKind::Number(NumberType::Other),
];

fn position<T: PartialEq>(table: &[T], item: &T) -> u64 {
    table.iter().position(|other| other == item).map_or(u64::MAX, |index| index as u64)
}

// Codes of constants.
const BOOL: u64 = 0;
const INT: u64 = 1;
const FLOAT: u64 = 2;
const TYPE: u64 = 3;
const OPAQUE: u64 = 4;

// The two low bits of the code of an operand or result say what the other bits are.
/// How far the value is from the one that is expected: the next that was not mentioned so far.
const FIRST_MENTION: u64 = 0;
/// The position among the operands and results of the owner of the scope.
const OF_OWNER: u64 = 1;
/// How many values were first mentioned in the scope since.
const OF_SCOPE: u64 = 2;
/// The constant; among results a slot without a value.
const LITERAL: u64 = 3;

fn columns<const N: usize>() -> [Column; N] {
    std::array::from_fn(|_| Column::default())
}

pub(super) fn write<'a>(program: &'a Program, texts: &mut TextWriter<'a>, payload: &mut Vec<u8>) {
    write_symbols(program, texts, payload);
    write_constants(program, payload);
    write_values(program, texts, payload);
    write_ops(program, payload);
    write_ends(program, payload);
}

/// The program of a file.
pub(super) fn read<const N: usize>(
    sections: &mut Sections<'_, N>,
    texts: &mut TextReader,
    budget: &mut Budget,
) -> Result<Program, ReadError> {
    let mut builder = ProgramBuilder::default();
    let symbols = read_symbols(sections.get(SYMBOLS)?, &mut builder, texts, budget)?;
    let constants = read_constants(sections.get(CONSTANTS)?, &mut builder, budget)?;
    let (values, names) = read_values(sections.get(VALUES)?, &mut builder, &constants, texts, budget)?;
    let sizes = Sizes { symbols, constants: constants.len(), values };
    let ops = sections.get(OPS)?;
    let at = ops.clone();
    read_ops(ops, &mut builder, &sizes, budget)?;
    read_ends(sections.get(ENDS)?, &mut builder, values, budget)?;
    let mut program = builder.finish().map_err(|error| at.error(error.into()))?;
    if let Some(names) = names {
        program.name_values(names);
    }
    Ok(program)
}

struct Sizes {
    symbols: usize,
    constants: usize,
    values: usize,
}

fn write_symbols<'a>(program: &'a Program, texts: &mut TextWriter<'a>, payload: &mut Vec<u8>) {
    let [mut head, mut names, mut flags, mut scalars] = columns();
    let mut expected = [Expected::default(); 2];
    head.size(program.symbols().len());
    for symbol in program.symbols() {
        names.uint(texts.code(&symbol.name, &mut expected[0]));
        flags.uint(u64::from(symbol.flags.bits()));
        scalars.uint(symbol.scalar.map_or(0, |scalar| 1 + texts.code(scalar.name(), &mut expected[1])));
    }
    push_section(payload, SYMBOLS, &[head, names, flags, scalars]);
}

fn read_symbols(
    section: Cursor<'_>,
    builder: &mut ProgramBuilder,
    texts: &mut TextReader,
    budget: &mut Budget,
) -> Result<usize, ReadError> {
    let [mut head, mut names, mut flags, mut scalars] = section.columns()?;
    let mut expected = [Expected::default(); 2];
    let count = head.count("symbols", &names, budget)?;
    for _ in 0..count {
        let code = names.uint()?;
        let name = texts.text(code, &mut expected[0], &names, budget)?.to_owned();
        let bits = flags.uint()?;
        let known = u16::try_from(bits).ok().and_then(SymbolFlags::from_bits);
        let symbol_flags = known.ok_or_else(|| {
            flags.error(ReadErrorKind::Code { what: "set of flags of a symbol known here", code: bits })
        })?;
        let scalar = match scalars.uint()? {
            0 => None,
            code => {
                let name = texts.text(code - 1, &mut expected[1], &scalars, budget)?;
                let scalar = ScalarOp::from_name(name);
                Some(scalar.ok_or_else(|| scalars.malformed("a symbol names arithmetic that is not known here"))?)
            }
        };
        builder.symbol(SymbolData { name, flags: symbol_flags, scalar }).map_err(|error| names.error(error.into()))?;
    }
    end_columns(&[head, names, flags, scalars])?;
    Ok(count)
}

fn write_constants(program: &Program, payload: &mut Vec<u8>) {
    let [mut head, mut kinds, mut numbers, mut floats] = columns();
    head.size(program.constants().len());
    for &constant in program.constants() {
        match constant {
            Number::Bool(truth) => {
                kinds.uint(BOOL);
                numbers.uint(u64::from(truth));
            }
            Number::Int(number) => {
                kinds.uint(INT);
                numbers.int(number);
            }
            Number::Float(number) => {
                kinds.uint(FLOAT);
                floats.raw(&number.to_bits().to_le_bytes());
            }
            Number::Type(number_type) => {
                kinds.uint(TYPE);
                numbers.uint(position(&NUMBER_TYPES, &number_type));
            }
            Number::Opaque(number) => {
                kinds.uint(OPAQUE);
                numbers.uint(u64::from(number));
            }
        }
    }
    push_section(payload, CONSTANTS, &[head, kinds, numbers, floats]);
}

/// Eight bytes of a column of floats.
pub(super) fn read_float(floats: &mut Cursor<'_>) -> Result<u64, ReadError> {
    let bytes = floats.raw(8, "the column")?;
    Ok(u64::from_le_bytes(std::array::from_fn(|index| bytes[index])))
}

fn read_constants(
    section: Cursor<'_>,
    builder: &mut ProgramBuilder,
    budget: &mut Budget,
) -> Result<Vec<Number>, ReadError> {
    let [mut head, mut kinds, mut numbers, mut floats] = section.columns()?;
    let count = head.count("constants", &kinds, budget)?;
    let mut constants = Vec::with_capacity(count);
    for index in 0..count {
        let number = match kinds.uint()? {
            BOOL => Number::Bool(numbers.index("truth value", 2)? == 1),
            INT => Number::Int(numbers.int()?),
            FLOAT => Number::Float(f64::from_bits(read_float(&mut floats)?)),
            TYPE => Number::Type(NUMBER_TYPES[numbers.index("type of number", NUMBER_TYPES.len())?]),
            OPAQUE => Number::Opaque(numbers.uint32("number of an opaque literal")?),
            code => return Err(kinds.error(ReadErrorKind::Code { what: "kind of constant known here", code })),
        };
        let constant = builder.constant(number).map_err(|error| kinds.error(error.into()))?;
        if constant.index() != index {
            return Err(kinds.malformed("a constant is there for a second time"));
        }
        constants.push(number);
    }
    end_columns(&[head, kinds, numbers, floats])?;
    Ok(constants)
}

fn write_values<'a>(program: &'a Program, texts: &mut TextWriter<'a>, payload: &mut Vec<u8>) {
    let [mut head, mut kinds, mut hints, mut names] = columns();
    let mut expected_hint = 0;
    let mut expected = Expected::default();
    head.size(program.value_count());
    for value in program.values() {
        kinds.uint(position(&VALUE_KINDS, &program.value_kind(value)));
        hints.uint(program.hint_constant(value).map_or(0, |constant| {
            let code = 1 + near(constant.index(), expected_hint);
            expected_hint = constant.index() + 1;
            code
        }));
        names.uint(program.given_name(value).map_or(0, |name| 1 + texts.code(name, &mut expected)));
    }
    push_section(payload, VALUES, &[head, kinds, hints, names]);
}

fn read_values(
    section: Cursor<'_>,
    builder: &mut ProgramBuilder,
    constants: &[Number],
    texts: &mut TextReader,
    budget: &mut Budget,
) -> Result<(usize, Option<Vec<String>>), ReadError> {
    let [mut head, mut kinds, mut hints, mut names] = section.columns()?;
    let count = head.count("values", &kinds, budget)?;
    let mut expected_hint = 0;
    let mut expected = Expected::default();
    let mut given = Vec::with_capacity(count);
    let mut any_name = false;
    for _ in 0..count {
        let kind = VALUE_KINDS[kinds.index("kind of value", VALUE_KINDS.len())?];
        let value = builder.value(kind).map_err(|error| kinds.error(error.into()))?;
        let hint = hints.uint()?;
        if hint != 0 {
            let constant = hints.near_of(hint - 1, "constant", expected_hint, constants.len())?;
            expected_hint = constant + 1;
            builder.hint(value, constants[constant]).map_err(|error| hints.error(error.into()))?;
        }
        given.push(match names.uint()? {
            0 => String::new(),
            code => {
                any_name = true;
                texts.text(code - 1, &mut expected, &names, budget)?.to_owned()
            }
        });
    }
    end_columns(&[head, kinds, hints, names])?;
    Ok((count, any_name.then_some(given)))
}

/// The values that the code of an operand or result can stand for.
#[derive(Debug)]
struct Mentions {
    /// Values mentioned in no scope so far, and the one that is expected next.
    unused: Unused,
    next: usize,
    /// What the owner of the scope has, by position; and first mentions in the scope, in order.
    of_owner: Vec<Value>,
    of_scope: Vec<Value>,
}

impl Mentions {
    fn new(values: usize) -> Self {
        Self { unused: Unused::new(values), next: 0, of_owner: Vec::new(), of_scope: Vec::new() }
    }

    fn mention(&mut self, value: Value) {
        self.of_scope.push(value);
        self.next = self.unused.take(value.index());
    }
}

/// [`Mentions`] with the ways back, for writing.
#[derive(Debug)]
struct MentionCodes {
    mentions: Mentions,
    owner_positions: StampMap,
    scope_positions: StampMap,
}

impl MentionCodes {
    fn new(values: usize) -> Self {
        let (owner_positions, scope_positions) = (StampMap::default(), StampMap::default());
        Self { mentions: Mentions::new(values), owner_positions, scope_positions }
    }

    fn start(&mut self, program: &Program, scope: Scope) {
        self.mentions.of_scope.clear();
        self.owner_positions.clear_for(program.value_count());
        self.scope_positions.clear_for(program.value_count());
        let Some(owner) = program.scope_owner(scope) else { return };
        for (position, value) in owned(program, owner).enumerate() {
            if !self.owner_positions.contains(value.index()) {
                self.owner_positions.insert(value.index(), position as u32);
            }
        }
    }

    fn code(&mut self, value: Value) -> u64 {
        if let Some(position) = self.owner_positions.get(value.index()) {
            return u64::from(position) << 2 | OF_OWNER;
        }
        let count = self.mentions.of_scope.len();
        if let Some(position) = self.scope_positions.get(value.index()) {
            return ((count - 1 - position as usize) as u64) << 2 | OF_SCOPE;
        }
        let code = near(value.index(), self.mentions.next) << 2 | FIRST_MENTION;
        self.scope_positions.insert(value.index(), count as u32);
        self.mentions.mention(value);
        code
    }
}

/// What the scope inside an op may use of the op.
fn owned(program: &Program, owner: Op) -> impl Iterator<Item = Value> + '_ {
    program.operand_values(owner).chain(program.result_values(owner))
}

fn write_ops(program: &Program, payload: &mut Vec<u8>) {
    let [mut head, mut scopes, mut symbols, mut flags] = columns();
    let [mut operand_counts, mut operands, mut result_counts, mut results] = columns();
    // A program that was never built has no scope yet; it is one with nothing in it.
    head.size(program.scope_count().max(1));
    head.size(program.op_count());
    if program.scope_count() == 0 {
        scopes.size(0);
    }
    let mut codes = MentionCodes::new(program.value_count());
    for scope in program.scopes() {
        scopes.size(program.scope_ops(scope).len());
        codes.start(program, scope);
        for op in program.scope_ops(scope) {
            symbols.size(program.symbol_id(op).index());
            flags.uint(u64::from(program.flags(op).bits()) << 1 | u64::from(program.op_scope(op).is_some()));
            operand_counts.size(program.operands(op).len());
            for operand in program.operands(op) {
                operands.uint(match (operand.value(), operand.constant()) {
                    (Some(value), _) => codes.code(value),
                    (None, constant) => (constant.map_or(0, Entity::index) as u64) << 2 | LITERAL,
                });
            }
            result_counts.size(program.results(op).len());
            for result in program.results(op) {
                results.uint(result.get().map_or(LITERAL, |value| codes.code(value)));
            }
        }
    }
    let columns = [head, scopes, symbols, flags, operand_counts, operands, result_counts, results];
    push_section(payload, OPS, &columns);
}

/// The value of a code that is not one of a literal.
#[inline]
fn read_mention(code: u64, mentions: &mut Mentions, at: &Cursor<'_>, sizes: &Sizes) -> Result<Value, ReadError> {
    let number = code >> 2;
    let found = match code & 3 {
        FIRST_MENTION => {
            let value = Value::from_index(at.near_of(number, "value", mentions.next, sizes.values)?);
            mentions.mention(value);
            Some(value)
        }
        OF_OWNER => usize::try_from(number).ok().and_then(|position| mentions.of_owner.get(position).copied()),
        _ => {
            let position = (mentions.of_scope.len() as u64).checked_sub(number + 1);
            position.map(|position| mentions.of_scope[position as usize])
        }
    };
    found.ok_or_else(|| {
        let count = if code & 3 == OF_OWNER { mentions.of_owner.len() } else { mentions.of_scope.len() };
        let what = "value of the scope or its owner";
        at.error(ReadErrorKind::Reference { what, index: number as i64, count: count as u64 })
    })
}

fn read_ops(
    section: Cursor<'_>,
    builder: &mut ProgramBuilder,
    sizes: &Sizes,
    budget: &mut Budget,
) -> Result<(), ReadError> {
    let [mut head, mut scopes, mut symbols, mut flags, rest @ ..] = section.columns::<8>()?;
    let [mut operand_counts, mut operands, mut result_counts, mut results] = rest;
    let scope_count = head.count("scopes", &scopes, budget)?;
    let op_count = head.count("ops", &symbols, budget)?;
    // Owners whose scope was not read yet, the next one last, each with what it has; and which of
    // those values are whose.
    let mut pending: Vec<(Op, std::ops::Range<usize>)> = Vec::new();
    let mut visible: Vec<Value> = Vec::new();
    let mut mentions = Mentions::new(sizes.values);
    let mut ops_left = op_count;
    for index in 0..scope_count {
        mentions.of_scope.clear();
        mentions.of_owner.clear();
        let opened = if index == 0 {
            builder.open_top_scope()
        } else {
            let Some((owner, range)) = pending.pop() else {
                return Err(scopes.malformed("there is a scope that no op owns"));
            };
            mentions.of_owner.extend_from_slice(&visible[range]);
            builder.open_scope(owner)
        };
        opened.map_err(|error| scopes.error(error.into()))?;
        let count = scopes.index("number of ops", ops_left + 1)?;
        ops_left -= count;
        let first_inside = pending.len();
        for _ in 0..count {
            let symbol = Symbol::from_index(symbols.index("symbol", sizes.symbols)?);
            let bits = flags.uint()?;
            let known = u8::try_from(bits >> 1).ok().and_then(OpFlags::from_bits);
            let op_flags = known.ok_or_else(|| {
                flags.error(ReadErrorKind::Code { what: "set of flags of an op known here", code: bits })
            })?;
            for _ in 0..operand_counts.count_within("operands", &operands)? {
                let code = operands.uint()?;
                let operand = if code & 3 == LITERAL {
                    let number = code >> 2;
                    if number >= sizes.constants as u64 {
                        let count = sizes.constants as u64;
                        let kind = ReadErrorKind::Reference { what: "constant", index: number as i64, count };
                        return Err(operands.error(kind));
                    }
                    Operand::from(Constant::from_index(number as usize))
                } else {
                    read_mention(code, &mut mentions, &operands, sizes)?.into()
                };
                builder.push_operand(operand);
            }
            for _ in 0..result_counts.count_within("results", &results)? {
                let code = results.uint()?;
                let result = match code {
                    LITERAL => PackedOption::NONE,
                    _ if code & 3 == LITERAL => {
                        return Err(results.error(ReadErrorKind::Code { what: "code of a result", code }));
                    }
                    _ => read_mention(code, &mut mentions, &results, sizes)?.into(),
                };
                builder.push_result(result);
            }
            let has_scope = bits & 1 == 1;
            let start = visible.len();
            if has_scope {
                visible.extend(builder.open_operands().iter().filter_map(|operand| operand.value()));
                visible.extend(builder.open_results().iter().filter_map(|result| result.get()));
            }
            let op = builder.finish_op(symbol, op_flags).map_err(|error| symbols.error(error.into()))?;
            if has_scope {
                pending.push((op, start..visible.len()));
            }
        }
        pending[first_inside..].reverse();
    }
    if ops_left > 0 || !pending.is_empty() {
        return Err(scopes.malformed("there are ops, or scopes inside ops, that are not listed"));
    }
    end_columns(&[head, scopes, symbols, flags, operand_counts, operands, result_counts, results])
}

fn write_ends(program: &Program, payload: &mut Vec<u8>) {
    let [mut head, mut inputs, mut outputs, mut pinned] = columns();
    let [mut tensors, mut positions, mut numbers] = columns();
    for (column, values) in
        [(&mut inputs, program.inputs()), (&mut outputs, program.outputs()), (&mut pinned, program.pinned())]
    {
        head.size(values.len());
        let mut expected = 0;
        for value in values {
            column.near(value.index(), expected);
            expected = value.index() + 1;
        }
    }
    head.size(program.shape_mentions().len());
    let (mut tensor, mut number) = (0, 0);
    for mention in program.shape_mentions() {
        tensors.near(mention.tensor.index(), tensor);
        positions.uint(u64::from(mention.position));
        numbers.near(mention.number.index(), number);
        (tensor, number) = (mention.tensor.index(), mention.number.index());
    }
    push_section(payload, ENDS, &[head, inputs, outputs, pinned, tensors, positions, numbers]);
}

fn read_ends(
    section: Cursor<'_>,
    builder: &mut ProgramBuilder,
    values: usize,
    budget: &mut Budget,
) -> Result<(), ReadError> {
    let [mut head, mut inputs, mut outputs, mut pinned, mut tensors, mut positions, mut numbers] = section.columns()?;
    for (column, what, add) in [
        (&mut inputs, "inputs", ProgramBuilder::input as fn(&mut _, _) -> _),
        (&mut outputs, "outputs", ProgramBuilder::output),
        (&mut pinned, "pinned values", ProgramBuilder::pin),
    ] {
        let mut expected = 0;
        for _ in 0..head.count(what, column, budget)? {
            let value = column.near("value", expected, values)?;
            expected = value + 1;
            add(builder, Value::from_index(value)).map_err(|error| column.error(error.into()))?;
        }
    }
    let (mut tensor, mut number) = (0, 0);
    for _ in 0..head.count("dimensions", &tensors, budget)? {
        tensor = tensors.near("value", tensor, values)?;
        let position = positions.uint32("dimension")?;
        number = numbers.near("value", number, values)?;
        builder
            .shape_mention(Value::from_index(tensor), position, Value::from_index(number))
            .map_err(|error| tensors.error(error.into()))?;
    }
    end_columns(&[head, inputs, outputs, pinned, tensors, positions, numbers])
}
