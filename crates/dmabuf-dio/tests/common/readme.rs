use dmabuf_dio::{Error, Loader, Saver};

fn load_and_copy() -> Result<(), Error> {
    // A dma-buf, or a memfd where there is none; without any_kind() that is an error.
    let loaded = Loader::new("model.safetensors").any_kind().load()?;
    println!("{}", loaded.report); // 548105171 bytes by module, direct: 0.182 s, 3.01 GB/s

    // A view brackets CPU access, so that the CPU and devices see the same content.
    let mut first = [0; 8];
    loaded.buf.map()?.read_at(loaded.data_offset, &mut first)?;

    Saver::new("copy.safetensors").save(&loaded.buf, loaded.range())?;
    Ok(())
}
