//! A codec whose streams begin with small buffers: the usual one takes eight KiB for each direction of each stream at once.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// What a stream's buffers begin with; they grow with what is said.
const BEGIN: usize = 256;
/// Of several messages at once, about so many bytes go out together.
const TOGETHER: usize = 4096;

/// Messages of prost's, `T` out and `U` in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Small<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Small<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for Small<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BEGIN, TOGETHER))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BEGIN, TOGETHER))
    }
}
