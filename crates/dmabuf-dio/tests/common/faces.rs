use dmabuf_dio::{Error, Loader, Saver};

fn load_look_and_save() -> Result<(), Error> {
    let buffer = Loader::new("model.bin").offset(4096).length(1 << 16).load()?;
    if let Some(report) = buffer.report() {
        println!("{report}"); // 65536 bytes by module, direct: 0.0002 s, 0.33 GB/s
    }
    match buffer.dma_buf() {
        Ok(dma_buf) => println!("a dma-buf of {} bytes", dma_buf.len()),
        Err(error) => println!("{error}: {}", error.hint()),
    }
    let mut first = [0; 16];
    buffer.read_at(buffer.data_offset(), &mut first)?;
    println!("{first:02x?}");
    Saver::new("copy.bin").save(&buffer, buffer.range())?;
    Ok(())
}
