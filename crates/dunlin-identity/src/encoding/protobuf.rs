//! Protocol Buffers, as far as the messages of CometBFT need them: read strictly, and written in the order of
//! the field numbers.
//!
//! Other readers take the last of several values for a field with one value. [`Message`] refuses such a
//! message: two readers of one signed text must never see different values.

use alloc::vec::Vec;

/// The longest varint, in bytes.
const MAX_VARINT: usize = 10;

/// A message is malformed, or a field has another type or occurs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed protobuf message")]
pub struct ProtobufError;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'m> {
    Varint(u64),
    Bytes(&'m [u8]),
    /// 32 or 64 bits. No message that we read has a field of this type.
    Fixed,
}

/// A message that refers to its bytes. A field that is not there has the value 0, or no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'m>(Vec<(u64, Value<'m>)>);

impl<'m> Message<'m> {
    /// Reads a message. The caller bounds its length.
    ///
    /// # Errors
    /// [`ProtobufError`].
    pub fn read(bytes: &'m [u8]) -> Result<Self, ProtobufError> {
        let mut fields = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (tag, after) = varint(rest)?;
            let (value, after) = match tag & 7 {
                0 => varint(after).map(|(value, after)| (Value::Varint(value), after))?,
                1 => (Value::Fixed, after.get(8..).ok_or(ProtobufError)?),
                2 => {
                    let (length, after) = varint(after)?;
                    let length = usize::try_from(length).map_err(|_| ProtobufError)?;
                    let (bytes, after) = after.split_at_checked(length).ok_or(ProtobufError)?;
                    (Value::Bytes(bytes), after)
                }
                5 => (Value::Fixed, after.get(4..).ok_or(ProtobufError)?),
                _ => return Err(ProtobufError),
            };
            fields.push((tag >> 3, value));
            rest = after;
        }
        Ok(Self(fields))
    }

    fn values(&self, field: u64) -> impl Iterator<Item = Value<'m>> {
        self.0.iter().filter(move |(number, _)| *number == field).map(|(_, value)| *value)
    }

    fn single(&self, field: u64) -> Result<Option<Value<'m>>, ProtobufError> {
        let mut values = self.values(field);
        let value = values.next();
        if values.next().is_some() { Err(ProtobufError) } else { Ok(value) }
    }

    /// A number, a boolean or an enumeration.
    ///
    /// # Errors
    /// [`ProtobufError`].
    pub fn number(&self, field: u64) -> Result<u64, ProtobufError> {
        match self.single(field)? {
            None => Ok(0),
            Some(Value::Varint(value)) => Ok(value),
            Some(_) => Err(ProtobufError),
        }
    }

    /// Bytes, a string, or a message inside.
    ///
    /// # Errors
    /// [`ProtobufError`].
    pub fn bytes(&self, field: u64) -> Result<&'m [u8], ProtobufError> {
        match self.single(field)? {
            None => Ok(&[]),
            Some(Value::Bytes(value)) => Ok(value),
            Some(_) => Err(ProtobufError),
        }
    }

    /// A message inside.
    ///
    /// # Errors
    /// [`ProtobufError`].
    pub fn message(&self, field: u64) -> Result<Self, ProtobufError> {
        Self::read(self.bytes(field)?)
    }

    /// A string.
    ///
    /// # Errors
    /// [`ProtobufError`].
    pub fn text(&self, field: u64) -> Result<&'m str, ProtobufError> {
        str::from_utf8(self.bytes(field)?).map_err(|_| ProtobufError)
    }

    /// All values of a repeated field of bytes, strings or messages.
    ///
    /// # Errors
    /// [`ProtobufError`].
    pub fn all(&self, field: u64) -> Result<Vec<&'m [u8]>, ProtobufError> {
        let bytes = |value| if let Value::Bytes(bytes) = value { Ok(bytes) } else { Err(ProtobufError) };
        self.values(field).map(bytes).collect()
    }

    /// The number and the content of the only field, a message: one of several (`oneof`).
    ///
    /// # Errors
    /// [`ProtobufError`].
    pub fn choice(&self) -> Result<(u64, Self), ProtobufError> {
        match self.0.as_slice() {
            [(number, Value::Bytes(bytes))] => Ok((*number, Self::read(bytes)?)),
            _ => Err(ProtobufError),
        }
    }
}

/// Reads a varint. Returns it and the bytes after it.
///
/// # Errors
/// [`ProtobufError`]: the bytes end in it, or it exceeds 64 bits.
pub fn varint(bytes: &[u8]) -> Result<(u64, &[u8]), ProtobufError> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(MAX_VARINT) {
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * index);
        if shifted >> (7 * index) != bits {
            return Err(ProtobufError);
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            return Ok((value, bytes.get(index + 1..).unwrap_or_default()));
        }
    }
    Err(ProtobufError)
}

/// A message that is being written. The caller adds the fields in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageWriter(Vec<u8>);

impl MessageWriter {
    fn varint(&mut self, value: u64) {
        let mut rest = value;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    fn tag(&mut self, field: u64, typ: u64) {
        self.varint(field << 3 | typ);
    }

    /// A number, a boolean or an enumeration. Its absence means 0.
    #[must_use]
    pub fn number(mut self, field: u64, value: u64) -> Self {
        if value != 0 {
            self.tag(field, 0);
            self.varint(value);
        }
        self
    }

    /// A number in 8 bytes. Its absence means 0.
    #[must_use]
    pub fn fixed(mut self, field: u64, value: u64) -> Self {
        if value != 0 {
            self.tag(field, 1);
            self.0.extend(value.to_le_bytes());
        }
        self
    }

    /// Bytes or a string. Their absence means that there are none.
    #[must_use]
    pub fn bytes(self, field: u64, value: &[u8]) -> Self {
        if value.is_empty() { self } else { self.message(field, value) }
    }

    /// A message inside, or an element of a repeated field, also without bytes.
    #[must_use]
    pub fn message(mut self, field: u64, value: &[u8]) -> Self {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// The message.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// The message after its length, as in streams.
    pub fn delimited(self) -> Vec<u8> {
        let mut stream = Self::default();
        stream.varint(self.0.len() as u64);
        [stream.0, self.0].concat()
    }
}
