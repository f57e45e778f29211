-- Runs inside darktable-cli, on its main thread: the export of a small picture raises the event.
-- The folder has raws with sidecars beside them. darktable writes each sidecar anew, and makes a style. For
-- darktable 4 only: 5 writes no sidecar without a window, and waits for one when a style is put on a picture.
local dt = require "darktable"
local folder = os.getenv("TMPDIR")
local begun = false

local function write(image, name)
  local format = dt.new_format("png")
  format.max_width, format.max_height, format.bpp = 600, 600, 8
  format:write_image(image, folder .. "/" .. name)
end

local function work()
  for name in io.lines(folder .. "/names") do
    local image = dt.database.import(folder .. "/" .. name .. ".dng")
    image.rating = 3 -- a change, so that the sidecar is written
  end
  -- A style is made of one picture and put on two others.
  local made = dt.styles.create(dt.database.import(folder .. "/style.dng"), "Dusk & dawn", "of a test")
  dt.styles.export(made, folder, true)
  for _, name in ipairs({ "plain", "edited" }) do
    local image = dt.database.import(folder .. "/" .. name .. ".dng")
    dt.styles.apply(made, image)
    write(image, name .. ".png")
  end
end

dt.register_event("chemigram", "intermediate-export-image", function()
  if begun then return end
  begun = true
  local ok, why = pcall(work)
  print(ok and "@OK" or "@ERR " .. tostring(why))
end)
