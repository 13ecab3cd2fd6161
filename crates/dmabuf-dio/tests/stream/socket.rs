// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples over the network.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::thread;

use dmabuf_dio::stream::{Ring, SocketSink, Stream};

use crate::devices::{Devices, FRAME, check};

#[test]
fn samples_over_the_network() {
    let Some(devices) = Devices::get() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    for (count, size, limit) in [(2, 16 << 10, 1 << 20), (4, 1 << 20, 20_000_000)] {
        let receiver = {
            let listener = listener.try_clone().expect("another");
            thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).expect("all of it");
                bytes
            })
        };
        let mut source = devices.source();
        let socket = TcpStream::connect(address).expect("connected");
        let mut sink = SocketSink::new(socket, "the receiver");
        let ring = Ring::new(count, size).expect("blocks");
        let summary = Stream::new(&mut source, &mut sink, ring).limit(limit).run().expect("run");
        println!("{}", summary.sink);
        let bytes = receiver.join().expect("the receiver");
        assert_eq!(bytes.len() as u64, limit / FRAME * FRAME);
        check(&bytes, 0);
    }
}

#[test]
fn a_receiver_that_goes_away() {
    let Some(devices) = Devices::get() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let socket = TcpStream::connect(listener.local_addr().expect("its number")).expect("connected");
    let (mut other, _) = listener.accept().expect("a connection");
    let receiver = thread::spawn(move || other.read_exact(&mut vec![0; 1 << 20]));
    let mut source = devices.source();
    let mut sink = SocketSink::new(socket, "the receiver");
    let ring = Ring::new(4, 1 << 20).expect("blocks");
    let ended = Stream::new(&mut source, &mut sink, ring).run().expect_err("nobody is there");
    let errno = ended.error.errno().map(dmabuf_dio::Errno::raw);
    assert!(matches!(errno, Some(libc::EPIPE | libc::ECONNRESET)), "{ended}");
    receiver.join().expect("the receiver").expect("the first bytes");
}
