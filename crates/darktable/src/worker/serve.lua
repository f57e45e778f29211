-- Keeps a darktable-cli alive as a renderer. darktable-cli runs this script at its start; its export of a tiny
-- picture raises the event below on the main thread, and the handler stays there, answering one request a line:
--
--   render TAB picture (with its sidecar beside it) TAB output TAB longest side
--
-- The same picture may come again, with another sidecar. The answer is one line, marked so that darktable's own
-- lines are not mistaken for it. At the end of the input the handler returns, and darktable-cli ends as it would
-- have.
local darktable = require "darktable"

local function answer(word)
  io.stdout:write("\n@chemigram ", word, "\n")
  io.stdout:flush()
end

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local at, image

local function render(picture, output, edge)
  -- Importing a path that does not exist ends the whole process.
  if not exists(picture) then error("no such picture", 0) end
  if image and at ~= picture then
    image:delete()
    image = nil
  end
  -- A picture that is known already takes the edit that its sidecar has now, and its raw is not decoded again.
  at, image = picture, darktable.database.import(picture)
  local format = darktable.new_format("tiff")
  format.bpp = 8
  format.max_width = edge
  format.max_height = edge
  -- What it returns means success in one version and failure in another: the file tells.
  local ok, reason = pcall(format.write_image, format, image, output)
  if not ok then error(reason, 0) end
  if not exists(output) then error("no picture was written", 0) end
end

local serving = false
darktable.register_event("chemigram", "intermediate-export-image", function()
  -- The renders below raise the event again.
  if serving then return end
  serving = true
  answer("ready")
  for line in io.lines() do
    local picture, output, edge = line:match("^render\t([^\t]+)\t([^\t]+)\t(%d+)$")
    if not picture then
      answer("failed: not a request")
    else
      local ok, reason = pcall(render, picture, output, tonumber(edge))
      answer(ok and "done" or "failed: " .. tostring(reason):gsub("%c", " "))
    end
  end
end)
